"""Runs the engine's requests of one call and turns what comes back into text events, until every one has ended.

One HTTP request is one engine request per prompt; choices are numbered through (prompt i: i·n to i·n+n-1). It knows no
HTTP. Tokens are counted here, up to the one that completes a stop string, so that the count depends neither on
streaming nor on how soon the engine hears that a stop string matched.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Literal

from headway.core.errors import HeadwayError, InternalError, Unavailable
from headway.core.messages import ChoiceFinished, Finished, TokenDelta, Usage
from headway.core.request import Request
from headway.engine.client import EngineClient, RequestEvent
from headway.gateway.choice_text import ChoiceText
from headway.gateway.request_record import RequestRecord
from headway.gateway.text_events import ChoiceEnd, TextEvent
from headway.wire.chat_response import FinishReason


class Generation:
    """One call's generation: entering submits every prompt (and raises the engine's refusal), then iterate `events`.

    `cancel` at any time; leaving cancels what still runs and waits for its terminal events.
    """

    def __init__(
        self,
        *,
        engine: EngineClient,
        requests: Sequence[Request],
        new_text: Callable[[int], ChoiceText],
        record: RequestRecord,
    ) -> None:
        self._engine = engine
        self._requests = tuple(requests)
        self._record = record
        self._n = requests[0].n
        self._texts = [new_text(choice) for choice in range(len(requests) * self._n)]
        self._sources: list[AsyncIterator[tuple[RequestEvent, ...]]] = []
        self._finished: list[Finished] = []
        self._reasons: set[FinishReason] = set()
        self._cancelled = False
        self._batches: AsyncIterator[tuple[int, tuple[RequestEvent, ...]]] | None = None

    async def __aenter__(self) -> "Generation":
        self._record.note_submitted()
        try:
            for request in self._requests:
                self._sources.append(self._engine.submit_nowait(request))
        except Exception:
            self._batches = _merge(self._sources)
            await self._settle()
            raise
        self._batches = _merge(self._sources)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.cancel()  # the server is being stopped: nobody waits for the end
        else:
            await self._settle()

    def cancel(self) -> None:
        """End everything within one step; idempotent."""
        if not self._cancelled:
            self._cancelled = True
            for request, _ in zip(self._requests, self._sources, strict=False):
                self._engine.cancel_nowait(request.request_id)

    @property
    def outcome(self) -> Literal["stop", "length"]:
        """How the call ended: "length" when every choice ran into its limit."""
        return "length" if self._reasons == {"length"} else "stop"

    @property
    def usage(self) -> Usage:
        """What was used so far; complete once everything has ended."""
        return Usage(
            prompt_tokens=sum(len(request.token_ids) for request in self._requests),
            completion_tokens=sum(text.num_tokens for text in self._texts),
            cached_tokens=sum(finished.usage.cached_tokens for finished in self._finished),
        )

    async def events(self) -> AsyncIterator[list[TextEvent]]:
        """Yield what each step brought, possibly nothing visible; stops when all is done or `cancel` took effect.

        Raises the engine's error.
        """
        assert self._batches is not None, "enter first"
        async for source, batch in self._batches:
            found: list[TextEvent] = []
            error: HeadwayError | None = None
            for event in batch:
                match event:
                    case TokenDelta():
                        found += self._on_tokens(source, event)
                    case ChoiceFinished():
                        found += self._on_choice(source, event)
                    case Finished():
                        error = self._on_finished(event)
            self._reasons.update(event.reason for event in found if isinstance(event, ChoiceEnd))
            if found or error is None:
                yield found
            if error is not None and not self._cancelled:
                raise error
        if not self._cancelled and not all(text.ended for text in self._texts):
            raise self._unexpected_end()

    async def _settle(self) -> None:
        if len(self._finished) == len(self._sources) or self._batches is None:
            return
        self.cancel()
        async for _, batch in self._batches:
            for event in batch:
                if isinstance(event, Finished):
                    self._note(event)

    def _on_tokens(self, source: int, delta: TokenDelta) -> Sequence[TextEvent]:
        text = self._texts[source * self._n + delta.choice]
        if self._cancelled or text.ended:
            return ()
        num_before = text.num_tokens
        found = text.push(delta.token_ids, delta.logprobs)
        self._record.note_tokens(text.choice, text.num_tokens - num_before)
        if found and isinstance(found[-1], ChoiceEnd):  # it ended for a reason that the engine does not know
            self._engine.cancel_nowait(self._requests[source].request_id, delta.choice, "stop")
        return found

    def _on_choice(self, source: int, choice: ChoiceFinished) -> Sequence[TextEvent]:
        if choice.reason == "cancelled" or choice.reason == "error":
            return ()  # the terminal event says more
        return self._texts[source * self._n + choice.choice].finish(choice.reason)

    def _on_finished(self, finished: Finished) -> HeadwayError | None:
        self._note(finished)
        return None if finished.error is None else finished.error.to_error()

    def _note(self, finished: Finished) -> None:
        self._finished.append(finished)
        self._record.note_finished(finished)

    def _unexpected_end(self) -> HeadwayError:
        if len(self._finished) < len(self._sources):
            return InternalError("The engine ended a request without a terminal event.")
        return Unavailable("The server ended the request before it was complete; send it again.")


async def _merge(
    sources: Sequence[AsyncIterator[tuple[RequestEvent, ...]]],
) -> AsyncIterator[tuple[int, tuple[RequestEvent, ...]]]:
    """Yield (index of the source, batch) as they come; bounded by `max_tokens` of each request, as a batch has tokens."""
    if len(sources) == 1:
        async for batch in sources[0]:
            yield 0, batch
        return
    queue: asyncio.Queue[tuple[int, tuple[RequestEvent, ...]] | BaseException | None] = asyncio.Queue()

    async def pump(index: int, source: AsyncIterator[tuple[RequestEvent, ...]]) -> None:
        try:
            async for batch in source:
                queue.put_nowait((index, batch))
        except Exception as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(index, source)) for index, source in enumerate(sources)]
    try:
        num_open = len(tasks)
        while num_open:
            item = await queue.get()
            if item is None:
                num_open -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
