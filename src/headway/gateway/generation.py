"""Runs the engine's requests of one call and turns what comes back into text events, until every one has ended.

One HTTP request is one engine request per prompt. It knows no HTTP. Tokens are counted here (`choices`), up to the one that
completes a stop string, so that the count depends neither on streaming nor on how soon the engine hears that a stop string
matched.

A generation that `survives` outlives its engine: it waits for the next one (`survival`) and asks it for the rest of every
choice, which is what the first one would have given (`core.resumption`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Literal

from headway.core.errors import EngineUnavailable, HeadwayError, InternalError, Unavailable
from headway.core.messages import ChoiceFinished, Finished, TokenDelta, Usage
from headway.core.request import Request
from headway.engine.client import EngineClient
from headway.gateway.choices import Choices
from headway.gateway.merging import Batch, merge
from headway.gateway.request_record import RequestRecord
from headway.gateway.step_record import StepRecord, record_of
from headway.gateway.survival import Survival
from headway.gateway.text_events import ChoiceEnd, TextEvent


class Generation:
    """One call's generation: entering submits every open request (and raises the engine's refusal), then iterate `events`.

    `cancel` at any time; leaving cancels what still runs and waits for its terminal events.

    choices    untouched, or as `replay` left them
    survives   whether to go on after the engine's end, if the engine repeats exactly
    """

    def __init__(
        self, *, engine: EngineClient, choices: Choices, record: RequestRecord, survives: bool = False
    ) -> None:
        self.num_resumed = 0
        """How often it went on with another engine."""
        self.is_done = False
        """Whether the events that came last are the last there are."""
        self._engine = engine
        self._choices = choices
        self._record = record
        self._survival = Survival(engine, begun=choices.interrupted) if survives else None
        self._running: list[tuple[int, Request]] = []  # (prompt, request), by source
        self._num_open = 0  # sources whose terminal event has not come
        self._batches: AsyncIterator[tuple[int, Batch]] | None = None
        self._last: tuple[int, Batch] = (0, ())
        self._cancelled = False

    async def __aenter__(self) -> "Generation":
        self._record.note_submitted()
        try:
            self._submit()
        except Exception:
            await self._settle()
            raise
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
            for _, request in self._running:
                self._engine.cancel_nowait(request.request_id)
            if self._survival is not None:
                self._survival.cancel()

    @property
    def outcome(self) -> Literal["stop", "length"]:
        """How the call ended: "length" when every choice ran into its limit."""
        return self._choices.outcome

    @property
    def usage(self) -> Usage:
        """What was used so far; complete once everything has ended."""
        return self._choices.usage

    @property
    def step(self) -> StepRecord:
        """What lies behind the events that came last: what `replay` needs of them in another process."""
        return record_of(*self._last)

    async def events(self) -> AsyncIterator[list[TextEvent]]:
        """Yield what each step brought, possibly nothing visible; stops when all is done or `cancel` took effect.

        Raises the engine's error.
        """
        assert self._batches is not None, "enter first"
        for ended in self._end_filled():
            yield ended
        while True:
            died: HeadwayError | None = None
            async for source, batch in self._batches:
                self._last = (self._running[source][0], batch)
                found, error = self._take(source, batch)
                self.is_done = error is None and not self._num_open and self._choices.all_ended
                if found or error is None or _has_tokens(batch):  # what is kept of a step must not miss any
                    yield found
                self._record.tell()
                if error is not None and not self._cancelled:
                    if died is None and self._survives(error):
                        died = error
                    elif type(error) is not type(died):  # of an engine that ended, each prompt hears
                        raise error
            if died is None or self._cancelled or self._choices.all_ended:
                break
            self._choices.interrupted = True
            for ended in self._end_filled():
                yield ended
            if self._choices.open_requests():
                await self._go_on(died)
        if not self._cancelled and not self._choices.all_ended:
            raise self._unexpected_end()

    def _submit(self) -> None:
        """Hand over what is open; raises the engine's refusal, with `_settle` left to do."""
        sources: list[AsyncIterator[Batch]] = []
        self._running = []
        try:
            for prompt, request in self._choices.open_requests():
                sources.append(self._engine.submit_nowait(request))
                self._running.append((prompt, request))
        finally:
            self._num_open = len(sources)
            self._batches = merge(sources)

    async def _settle(self) -> None:
        if not self._num_open or self._batches is None:
            return
        self.cancel()
        async for source, batch in self._batches:
            for event in batch:
                if isinstance(event, Finished):
                    self._note(source, event)

    def _survives(self, error: HeadwayError) -> bool:
        return self._survival is not None and self._survival.survives(error)

    async def _go_on(self, died: HeadwayError) -> None:
        """Have the next engine do the rest; raises `died`, or why it does not."""
        assert self._survival is not None
        while True:
            await self._survival.wait_for_engine(died)
            if self._cancelled:
                return
            try:
                self._submit()
            except EngineUnavailable as error:  # it has ended again
                if not self._survives(error):
                    raise died from error
            else:
                self.num_resumed += 1
                return

    def _end_filled(self) -> Iterator[list[TextEvent]]:
        """End choices that have all their tokens: whoever would have said so is gone."""
        for prompt, choice in self._choices.filled():
            ended = ChoiceFinished(self._choices.requests[prompt].request_id, choice, "length")
            self._last = (prompt, (ended,))
            yield list(self._choices.finish(prompt, choice, "length"))

    def _take(self, source: int, batch: Batch) -> tuple[list[TextEvent], HeadwayError | None]:
        """Return what a step made visible, and how it ended its request if that was an error."""
        found: list[TextEvent] = []
        error: HeadwayError | None = None
        arrived: dict[int, int] = {}  # choice among all → tokens
        now_ns = self._record.now_ns()
        for event in batch:
            match event:
                case TokenDelta():
                    found += self._on_tokens(source, event, arrived)
                case ChoiceFinished(reason="stop" | "length" as reason):  # else the terminal event says more
                    found += self._choices.finish(self._running[source][0], event.choice, reason)
                case Finished():
                    self._note(source, event)
                    error = None if event.error is None else event.error.to_error()
        for choice, num_tokens in arrived.items():
            self._record.note_tokens(choice, num_tokens, now_ns)
        if arrived and self._survival is not None:
            self._survival.note_tokens()
        return found, error

    def _on_tokens(self, source: int, delta: TokenDelta, arrived: dict[int, int]) -> Sequence[TextEvent]:
        """Return what a choice's tokens made visible; count them in `arrived`."""
        if self._cancelled:
            return ()
        prompt, request = self._running[source]
        choice = self._choices.index(prompt, delta.choice)
        num_tokens, found = self._choices.push(choice, delta.token_ids, delta.logprobs)
        if not num_tokens:
            return ()
        arrived[choice] = arrived.get(choice, 0) + num_tokens
        if found and isinstance(found[-1], ChoiceEnd):  # it ended for a reason that the engine does not know
            self._engine.cancel_nowait(request.request_id, delta.choice, "stop")
        return found

    def _note(self, source: int, finished: Finished) -> None:
        self._num_open -= 1
        self._choices.note_cached(self._running[source][0], finished.usage.cached_tokens)
        self._record.note_finished(finished)

    def _unexpected_end(self) -> HeadwayError:
        if self._num_open:
            return InternalError("The engine ended a request without a terminal event.")
        return Unavailable("The server ended the request before it was complete; send it again.")


def _has_tokens(batch: Batch) -> bool:
    return any(isinstance(event, TokenDelta) for event in batch)
