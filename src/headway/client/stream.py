"""An answer while it comes: what `Client.stream` gives."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Final

from headway.client.answer import Answer, Delta
from headway.client.call import Call
from headway.client.errors import error_of
from headway.client.exchange import Exchange
from headway.client.failure import Failure, Kind
from headway.client.merge import Merger
from headway.client.policy import CannedAnswer
from headway.client.race import Race
from headway.client.reading import Ended

_CANNED: Final = frozenset(
    {Kind.LIMITED, Kind.BUSY, Kind.SLOW, Kind.CUT, Kind.BROKEN, Kind.UNREACHABLE, Kind.THROTTLED}
)
"""After what the canned answer stands in; a call that is wrong, or a model or key that is, would stay so unnoticed."""


class Stream:
    """The deltas of one answer, in order, as they come; then its whole, `answer`.

    Use it as a context: leaving early closes the connection at once. The call begins with the first delta that is asked for.
    Iterating raises the one `CallError` that ends a call without an answer. Nothing follows what was handed on but the
    rest of the same answer: a fallback answers only before the first delta.
    """

    def __init__(self, start: Callable[[], tuple[Call, Race]], last_resort: CannedAnswer | None) -> None:
        self._last_resort = last_resort
        self._start = start
        self._merger = Merger()
        self._answer: Answer | None = None
        self._deltas = self._run()

    @property
    def text(self) -> str:
        """The text that was handed on so far."""
        return self._merger.text

    @property
    def answer(self) -> Answer:
        """The whole answer, once the deltas are through; raises RuntimeError before."""
        if self._answer is None:
            raise RuntimeError("The answer is not whole: take all deltas first, or `await stream.collect()`.")
        return self._answer

    async def collect(self) -> Answer:
        """Take what is left and return the whole answer; raises CallError."""
        async for _ in self:
            pass
        return self.answer

    async def texts(self) -> AsyncIterator[str]:
        """Yield the text alone, as it comes; raises CallError."""
        async for delta in self:
            if delta.text:
                yield delta.text

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Delta:
        return await anext(self._deltas)

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection of the call at once."""
        await self._deltas.aclose()

    async def _run(self) -> AsyncGenerator[Delta, None]:
        call, race = self._start()
        try:
            won = await race.run()
            if isinstance(won, Failure):
                for canned in self._stand_in(call, race, won):
                    self._merger.add(canned)
                    yield canned
                return
            while (delta := await self._next(call, race, won)) is not None:
                self._merger.add(delta)
                yield delta
        finally:
            await race.aclose()

    async def _next(self, call: Call, race: Race, won: Exchange) -> Delta | None:
        """Return the next delta; None = the answer is whole. Raises CallError."""
        while True:
            won.check()
            late = call.clock.now_ns() >= call.end_ns and not isinstance(won.end, Ended)
            if (delta := None if late else won.take()) is not None:
                return delta
            if isinstance(won.end, Ended):
                self._answer = self._whole(call, race, won, won.end)
                return None
            failure = Failure(kind=Kind.SLOW, message="The answer did not end in time.") if late else won.end
            if failure is not None:
                raise error_of(failure, text=self._merger.text, attempts=race.attempts())
            await call.wait(call.end_ns)

    def _stand_in(self, call: Call, race: Race, failure: Failure) -> list[Delta]:
        """Nobody answered: return the canned answer's deltas; raises CallError where there is none for such a failure."""
        if self._last_resort is None or failure.kind not in _CANNED:
            raise error_of(failure, attempts=race.attempts())
        text = self._last_resort.text
        self._answer = Answer(
            text=text,
            finish_reason="fallback",
            total_ns=call.clock.now_ns() - call.start_ns,
            attempts=race.attempts(),
        )
        return [Delta(text=text)] if text else []

    def _whole(self, call: Call, race: Race, won: Exchange, end: Ended) -> Answer:
        merger = self._merger
        text = merger.text if won.ask.clean is None else won.ask.clean(merger.text)
        assert won.first_ns is not None
        return Answer(
            text=text,
            reasoning=merger.reasoning,
            tool_calls=merger.tool_calls,
            finish_reason=end.finish_reason,
            usage=end.usage,
            endpoint=won.endpoint.label,
            model=end.model,
            ttft_ns=won.first_ns - call.start_ns,
            total_ns=call.clock.now_ns() - call.start_ns,
            num_resumes=won.num_resumes,
            attempts=race.attempts(),
        )
