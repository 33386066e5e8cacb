"""Which requests an engine client has running, and the stream of events each of them reads.

One step's message becomes one wake-up per request that it names. Every stream ends in exactly one `Finished`, whoever
writes it: the engine, or `end_all` when the engine has gone. It knows no transport and no state of the engine.
"""

import asyncio
from collections import deque
from typing import Final

from headway.core.errors import HeadwayError
from headway.core.messages import ChoiceFinished, ErrorInfo, Finished, StepOutputs, TokenDelta, Usage
from headway.core.request import Request
from headway.engine.client import RequestEvent

EVENTS_AT_ONCE: Final = 64
"""Most that a reader who fell behind gets as one, unless a single step has more: what he makes of it must fit somewhere."""


class RequestStream:
    """What each step did for one request, in order: an async iterator for one reader.

    A reader who keeps up gets a step at a time. One who does not gets what waits as if it were one step, tokens before ends,
    so that what he does once for a step (a write to a socket, a commit) puts him no further behind. The first step always
    comes alone: somebody waits for it.

    It may be left at any time; what nobody reads is bounded by the request's `max_tokens`.
    """

    def __init__(self, request: Request) -> None:
        self._prompt_tokens = len(request.token_ids)
        self._completion_tokens = 0
        self._open_choices = set(range(request.first_choice, request.first_choice + request.n))
        self._cancelled: set[int | None] = set()
        self._steps: deque[tuple[RequestEvent, ...]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._begun = False
        self._ended = False

    def __aiter__(self) -> "RequestStream":
        return self

    async def __anext__(self) -> tuple[RequestEvent, ...]:
        while not self._steps:
            if self._ended:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("a request's events have one reader")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events = self._steps.popleft()
        if not self._begun or not self._steps:
            self._begun = True
            return events
        tokens: list[RequestEvent] = []
        ends: list[RequestEvent] = []
        while True:
            for event in events:
                (tokens if isinstance(event, TokenDelta) else ends).append(event)
            if not self._steps or len(tokens) + len(ends) + len(self._steps[0]) > EVENTS_AT_ONCE:
                break
            events = self._steps.popleft()
        ends.sort(key=lambda event: isinstance(event, Finished))
        return (*tokens, *ends)

    def push(self, events: tuple[RequestEvent, ...]) -> bool:
        """Append one step's events and wake the reader; return whether the request has ended."""
        for event in events:
            if isinstance(event, TokenDelta):
                self._completion_tokens += len(event.token_ids)
            elif isinstance(event, ChoiceFinished):
                self._open_choices.discard(event.choice)
            else:
                self._ended = True
        self._steps.append(events)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return self._ended

    def note_cancel(self, choice: int | None) -> bool:
        """Return whether cancelling `choice` (None = all) is news to the engine, and remember that it was told."""
        if None in self._cancelled or choice in self._cancelled:
            return False
        if choice is not None and choice not in self._open_choices:
            return False
        self._cancelled.add(choice)
        return True

    def failure(self, request_id: str, error: ErrorInfo, now_ns: int) -> tuple[RequestEvent, ...]:
        """Return the events that end this request with `error`, with the usage seen so far."""
        choices = tuple(ChoiceFinished(request_id, choice, "error") for choice in sorted(self._open_choices))
        usage = Usage(prompt_tokens=self._prompt_tokens, completion_tokens=self._completion_tokens)
        return (*choices, Finished(request_id=request_id, usage=usage, error=error, finished_ns=now_ns))


class RequestTable:
    """The running requests of one client, by id. Belongs to one event loop."""

    def __init__(self) -> None:
        self._streams: dict[str, RequestStream] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, request: Request) -> RequestStream:
        """Open the stream of a new request; raises ValueError when its id is running already."""
        if request.request_id in self._streams:
            raise ValueError(f"request {request.request_id} is running already")
        stream = self._streams[request.request_id] = RequestStream(request)
        self._empty.clear()
        return stream

    def discard(self, request_id: str) -> None:
        """Forget a request that was not accepted."""
        if request_id in self._streams:
            self._remove(request_id)

    def note_cancel(self, request_id: str, choice: int | None) -> bool:
        """Return whether the engine must be told of this cancellation: running, and not told before."""
        stream = self._streams.get(request_id)
        return stream is not None and stream.note_cancel(choice)

    def deliver(self, outputs: StepOutputs) -> None:
        """Hand one step's events to their streams; ids that are not running are ignored."""
        by_request: dict[str, list[RequestEvent]] = {}
        for events in (outputs.deltas, outputs.choices, outputs.finished):
            for event in events:
                by_request.setdefault(event.request_id, []).append(event)
        for request_id, request_events in by_request.items():
            stream = self._streams.get(request_id)
            if stream is not None and stream.push(tuple(request_events)):
                self._remove(request_id)

    def end_all(self, error: HeadwayError, now_ns: int) -> int:
        """End every running request with `error`; return how many there were."""
        info = ErrorInfo.of(error)
        ended = tuple(self._streams.items())
        for request_id, stream in ended:
            stream.push(stream.failure(request_id, info, now_ns))
            self._remove(request_id)
        return len(ended)

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait until no request runs; return whether that came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _remove(self, request_id: str) -> None:
        del self._streams[request_id]
        if not self._streams:
            self._empty.set()
