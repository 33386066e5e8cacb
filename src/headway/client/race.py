"""Carries out `client/plan.py` until an endpoint answers with its first token, or nobody will."""

import asyncio
import random
from dataclasses import replace
from typing import Final

from headway.client.answer import Attempt
from headway.client.call import Call
from headway.client.exchange import Exchange
from headway.client.failure import Failure, Kind
from headway.client.hedge import Hedges
from headway.client.plan import Abandon, GiveUp, Situation, Start, Try, Wait, next_move, too_slow
from headway.client.policy import to_ns
from headway.client.throttle import Throttle

_REFUSALS: Final = frozenset({Kind.LIMITED, Kind.BUSY, Kind.SLOW, Kind.UNREACHABLE, Kind.THROTTLED})
"""What counts as refused for throttling; whoever says that the request is wrong has taken it."""


class Race:
    """The endpoints that one call asks. Close it when the call ends; the winner is closed by then too.

    throttles  one for each endpoint, or none at all
    draws      for throttling
    """

    def __init__(
        self, call: Call, throttles: tuple[Throttle, ...], hedges: Hedges | None, draws: random.Random
    ) -> None:
        self._call = call
        self._throttles = throttles
        self._hedges = hedges
        self._draws = draws
        self._tries: list[Try] = []
        self._exchanges: dict[int, Exchange] = {}  # by the place of their try
        self._winner: int | None = None

    async def run(self) -> Exchange | Failure:
        """Return the exchange whose first token came first, or why the call ends without one."""
        if self._hedges is not None:
            self._hedges.called()
        while True:
            self._take_ends()
            if (number := self._first_answer()) is not None:
                return await self._win(number)
            match next_move(self._situation()):
                case Start() as start:
                    self._start(start)
                case Abandon(number):
                    await self._end(number, too_slow())
                case Wait(until_ns):
                    await self._call.wait(until_ns)
                case GiveUp(failure):
                    for number in self._running():
                        self._fail(number, too_slow())
                    return failure

    async def aclose(self) -> None:
        """Close every connection at once."""
        await asyncio.gather(*(exchange.aclose() for exchange in self._exchanges.values()))

    def attempts(self) -> tuple[Attempt, ...]:
        """Return who was asked, and what came of it."""
        return tuple(self._attempt(number, each) for number, each in enumerate(self._tries))

    def _situation(self) -> Situation:
        call, places = self._call, range(len(self._call.endpoints))
        patience_s = (endpoint.first_token_s for endpoint in call.endpoints)
        return Situation(
            now_ns=call.clock.now_ns(),
            deadline_ns=call.first_token_ns,
            patience_ns=tuple(None if each is None else to_ns(each) for each in patience_s),
            tries=tuple(self._tries),
            retries_left=call.budget.left,
            hedge_after_ns=tuple(None for _ in places) if self._hedges is None else self._hedges.after_ns(),
            jitter=call.jitter,
        )

    def _start(self, start: Start) -> None:
        now_ns = self._call.clock.now_ns()
        number = len(self._tries)
        self._tries.append(
            Try(endpoint=start.endpoint, why=start.why, start_ns=now_ns, until_ns=start.until_ns)
        )
        if start.why == "retry":
            self._call.budget.take()
        if start.why == "hedge" and self._hedges is not None:
            self._hedges.hedged()
        if self._throttles and not self._throttles[start.endpoint].admits(now_ns, self._draws.random()):
            label = self._call.endpoints[start.endpoint].label
            self._fail(
                number,
                Failure(
                    kind=Kind.THROTTLED, message=f"{label} refused too much lately; nothing was sent to it."
                ),
            )
            return
        self._exchanges[number] = Exchange(self._call, start.endpoint, start.until_ns)

    def _take_ends(self) -> None:
        for number, exchange in self._exchanges.items():
            exchange.check()
            failed = exchange.end if isinstance(exchange.end, Failure) else None
            if self._tries[number].failure is None and failed is not None and exchange.first_ns is None:
                self._fail(number, failed)

    def _first_answer(self) -> int | None:
        answered = [
            (exchange.first_ns, number)
            for number, exchange in self._exchanges.items()
            if exchange.first_ns is not None and self._tries[number].failure is None
        ]
        return min(answered)[1] if answered else None

    async def _win(self, number: int) -> Exchange:
        winner, each = self._exchanges[number], self._tries[number]
        assert winner.first_ns is not None
        self._tries[number] = replace(each, end_ns=winner.first_ns)
        self._winner = number
        self._accepted(each.endpoint)
        if self._hedges is not None:
            self._hedges.answered(each.endpoint, winner.first_ns - each.start_ns)
        for other in self._running():
            if other != number:
                self._accepted(self._tries[other].endpoint)  # it was not refused
                await self._exchanges[other].aclose()
        return winner

    def _running(self) -> list[int]:
        return [number for number, each in enumerate(self._tries) if each.end_ns is None]

    async def _end(self, number: int, failure: Failure) -> None:
        self._fail(number, failure)
        await self._exchanges[number].aclose()

    def _fail(self, number: int, failure: Failure) -> None:
        now_ns = self._call.clock.now_ns()
        each = self._tries[number] = replace(self._tries[number], end_ns=now_ns, failure=failure)
        if failure.kind not in _REFUSALS:
            self._accepted(each.endpoint)

    def _accepted(self, endpoint: int) -> None:
        if self._throttles:
            self._throttles[endpoint].accepted(self._call.clock.now_ns())

    def _attempt(self, number: int, each: Try) -> Attempt:
        call, failure = self._call, each.failure
        end_ns = call.clock.now_ns() if each.end_ns is None else each.end_ns
        outcome = "answered" if number == self._winner else "lost"
        return Attempt(
            endpoint=call.endpoints[each.endpoint].label,
            why=each.why,
            start_ns=each.start_ns - call.start_ns,
            took_ns=end_ns - each.start_ns,
            outcome=outcome if failure is None else failure.code or failure.kind.name.lower(),
            message="" if failure is None else failure.message,
            status=None if failure is None else failure.status,
        )
