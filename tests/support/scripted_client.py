"""An engine that does what the test says: it records requests and cancellations, and delivers what the test emits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Literal

from headway.core.errors import EngineUnavailable, HeadwayError
from headway.core.events import EngineState
from headway.core.messages import (
    ChoiceFinished,
    EngineInfo,
    EngineStats,
    ErrorInfo,
    Finished,
    FinishReason,
    TokenDelta,
    TokenLogprobs,
    Usage,
)
from headway.core.request import Request
from headway.engine.client import RequestEvent

Batch = tuple[RequestEvent, ...]
Script = Callable[[Request], Iterable[Batch]]

INFO = EngineInfo(
    model="fake", vocab_size=300, max_context=64, num_blocks=8, block_size=16, system_fingerprint="fp_fake"
)


class FakeEngineClient:
    """Implements `EngineClient`. With `script`, a submitted request gets that script's batches at once."""

    def __init__(self, info: EngineInfo = INFO, script: Script | None = None) -> None:
        self.state: EngineState = "ready"
        self.info = info
        self.requests: list[Request] = []
        self.cancels: list[tuple[str, int | None, str]] = []
        self.refuse: HeadwayError | None = None
        self.returns: list[Awaitable[EngineInfo]] = []
        self.sessions: set[tuple[str, str]] = set()
        self._script = script
        self._submitted = asyncio.Event()
        self._live: dict[str, _Live] = {}

    @property
    def live(self) -> frozenset[str]:
        """Ids of requests without their terminal event."""
        return frozenset(self._live)

    @property
    def num_live(self) -> int:
        """Requests without their terminal event."""
        return len(self._live)

    def statistics(self) -> EngineStats:
        return EngineStats(num_running=len(self._live))

    def submit_nowait(self, request: Request) -> AsyncIterator[Batch]:
        if self.refuse is not None:
            raise self.refuse
        self.requests.append(request)
        self._submitted.set()
        live = self._live[request.request_id] = _Live(request)
        if self._script is not None:
            for batch in self._script(request):
                self._deliver(live, batch)
        return live

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        self.cancels.append((request_id, choice, reason))
        live = self._live.get(request_id)
        if live is None:
            return
        ended = sorted(live.open if choice is None else live.open & {choice})
        batch: Batch = tuple(ChoiceFinished(request_id, index, reason) for index in ended)
        if live.open == set(ended):
            batch = (*batch, live.terminal())
        if batch:
            self._deliver(live, batch)

    async def release_session(self, tenant: str, session: str) -> bool:
        if self.refuse is not None:
            raise self.refuse
        known = (tenant, session) in self.sessions
        self.sessions.discard((tenant, session))
        return known

    async def wait_ready(self) -> None:
        """One that ended is not replaced, unless a test says when, and by what."""
        if not self.returns:
            raise EngineUnavailable("It does not come back.")
        self.info = await self.returns.pop(0)

    async def start(self) -> None:
        self.state = "ready"

    async def drain(self, timeout_s: float) -> bool:
        del timeout_s
        self.state = "draining"
        return not self._live

    async def close(self) -> None:
        self.state = "closed"

    async def wait_requests(self, count: int) -> None:
        """Wait until `count` requests were submitted."""
        while len(self.requests) < count:
            self._submitted.clear()
            await self._submitted.wait()

    def emit(
        self, request: Request, token_ids: Iterable[int], choice: int = 0, *, logprobs: bool = False
    ) -> None:
        """Deliver one step's tokens."""
        self._deliver(self._live[request.request_id], (delta(request, token_ids, choice, logprobs=logprobs),))

    def finish(self, request: Request, reason: FinishReason = "stop", cached_tokens: int = 0) -> None:
        """End every open choice, and the request."""
        live = self._live[request.request_id]
        choices = tuple(ChoiceFinished(request.request_id, index, reason) for index in sorted(live.open))
        self._deliver(live, (*choices, live.terminal(cached_tokens)))

    def emit_end(self, request: Request, finished: Finished) -> None:
        """End the only choice, and the request with an end of the test's own."""
        self._deliver(
            self._live[request.request_id], (ChoiceFinished(request.request_id, 0, "stop"), finished)
        )

    def fail(self, request: Request, error: ErrorInfo, last_tokens: Sequence[int] = ()) -> None:
        """End a request with an error; `last_tokens`: what the only choice gets with it, as who fell behind does."""
        live = self._live[request.request_id]
        choices = tuple(ChoiceFinished(request.request_id, index, "error") for index in sorted(live.open))
        tokens = (delta(request, last_tokens),) if last_tokens else ()
        self._deliver(live, (*tokens, *choices, live.terminal(error=error)))

    def _deliver(self, live: "_Live", batch: Batch) -> None:
        for event in batch:
            if isinstance(event, TokenDelta):
                live.num_tokens += len(event.token_ids)
            elif isinstance(event, ChoiceFinished):
                live.open.discard(event.choice)
            else:
                del self._live[live.request.request_id]
        live.queue.put_nowait(batch)


class _Live:
    """One request's stream of batches."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.open = set(range(request.first_choice, request.first_choice + request.n))
        self.num_tokens = 0
        self.queue: asyncio.Queue[Batch] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> "_Live":
        return self

    async def __anext__(self) -> Batch:
        if self._ended:
            raise StopAsyncIteration
        batch = await self.queue.get()
        self._ended = any(isinstance(event, Finished) for event in batch)
        return batch

    def terminal(self, cached_tokens: int = 0, error: ErrorInfo | None = None) -> Finished:
        usage = Usage(
            prompt_tokens=len(self.request.token_ids),
            completion_tokens=self.num_tokens,
            cached_tokens=cached_tokens,
        )
        return Finished(
            request_id=self.request.request_id,
            usage=usage,
            error=error,
            queued_ns=1_000_000,
            first_scheduled_ns=3_000_000,
        )


def delta(
    request: Request, token_ids: Iterable[int], choice: int = 0, *, logprobs: bool = False
) -> TokenDelta:
    """A step's tokens; with `logprobs` each has −id/100, and one alternative of id + 1."""
    ids = tuple(token_ids)
    scores = tuple(
        TokenLogprobs(i, -i / 100, ((i, -i / 100), (i + 1, -(i + 1) / 100))) for i in ids if logprobs
    )
    return TokenDelta(request.request_id, choice, ids, scores)


def answering(
    text: str | Sequence[int], *, reason: FinishReason = "stop", per_step: int = 1, cached: int = 0
) -> Script:
    """A script that answers every choice with `text`, as byte tokens if it is no token ids; at most `max_tokens`."""

    def script(request: Request) -> Iterable[Batch]:
        ids = (text.encode() if isinstance(text, str) else text)[: request.max_tokens]
        for start in range(0, len(ids), per_step):
            part = ids[start : start + per_step]
            logprobs = request.sampling.num_logprobs is not None
            yield tuple(delta(request, part, choice, logprobs=logprobs) for choice in range(request.n))
        usage = Usage(
            prompt_tokens=len(request.token_ids), completion_tokens=len(ids) * request.n, cached_tokens=cached
        )
        ends = tuple(ChoiceFinished(request.request_id, choice, reason) for choice in range(request.n))
        yield (*ends, Finished(request_id=request.request_id, usage=usage))

    return script
