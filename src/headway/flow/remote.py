"""The gate before a remote engine: requests wait here for their turn, instead of there for whoever came first.

It carries out what `shares.py` and `gradient.py` decide.

    async with gate.place(caller, num_prompt_tokens) as place:     # waits; raises QueueFull
        async for tokens in ...:
            place.generated(len(tokens))                           # raises Displaced where `high` took the place
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.core.errors import Displaced, QueueFull
from headway.core.request import ServiceClass
from headway.flow.gradient import Gradient, failed, step
from headway.flow.shares import RemoteQueue, Ticket, Turns

MAX_WAITING: Final = 1024
"""Of each class."""
RETRY_S: Final = 1.0


class Place:
    """A request's place at the engine. `displaced` is set when it is to end, before its first token."""

    __slots__ = ("_gate", "_in_flight", "_started_ns", "displaced", "ticket")

    def __init__(self, gate: "RemoteGate", ticket: Ticket, started_ns: int, in_flight: int) -> None:
        self._gate = gate
        self._started_ns = started_ns
        self._in_flight = in_flight
        self.ticket = ticket
        self.displaced = asyncio.Event()

    def check(self) -> None:
        """Raise Displaced if a better class has taken the place."""
        if self.displaced.is_set():
            raise Displaced(
                "A request of a better class needed this one's place; send it again.", retry_after_s=RETRY_S
            )

    def generated(self, num_tokens: int) -> None:
        """The engine has sent tokens; raises Displaced if they come too late to count."""
        self.check()
        self._gate.generated(self, num_tokens, self._started_ns, self._in_flight)


class RemoteGate:
    """Owns the queue before one remote engine."""

    def __init__(
        self,
        clock: Clock,
        *,
        shares: tuple[int, int, int] = (50, 30, 20),
        lend_high: Literal["idle", "never"] = "never",
        gradient: Gradient | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._clock = clock
        self._gradient = gradient or Gradient()
        self._queue = RemoteQueue(
            shares=shares, lend_high=lend_high, num_places=self._gradient.num_places, max_waiting=max_waiting
        )
        self._starts: dict[Ticket, asyncio.Future[Place]] = {}
        self._places: dict[Ticket, Place] = {}

    @property
    def num_places(self) -> int:
        """Calls that the engine is believed to take at once."""
        return self._queue.num_places

    @property
    def num_waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._queue.num_waiting

    @asynccontextmanager
    async def place(self, caller: Caller, num_prompt_tokens: int) -> AsyncIterator[Place]:
        """Wait for a turn and hold a place; raises QueueFull, at once or while it waits."""
        ticket = self._queue.arrive(caller.service_class, caller.tenant, num_prompt_tokens)
        self._starts[ticket] = asyncio.get_running_loop().create_future()
        try:
            self._carry_out(self._queue.turns(self._clock.now_ns()))
            self._make_room(caller.service_class)
            yield await self._starts[ticket]
        finally:
            self._starts.pop(ticket, None)
            self._places.pop(ticket, None)
            self._queue.leave(ticket)
            self._carry_out(self._queue.turns(self._clock.now_ns()))

    def _make_room(self, service_class: ServiceClass) -> None:
        crowded_out = self._queue.crowded_out(service_class)
        if crowded_out is not None:
            self._queue.leave(crowded_out)
            full = QueueFull(
                "Too many requests wait for this model's engine; retry later.", retry_after_s=RETRY_S
            )
            if not self._starts[crowded_out].done():  # else it has given up by itself
                self._starts[crowded_out].set_exception(full)

    def generated(self, place: Place, num_tokens: int, started_ns: int, in_flight: int) -> None:
        """See `Place.generated`."""
        now_ns, ticket = self._clock.now_ns(), place.ticket
        if not ticket.has_token:
            self._move(step(self._gradient, now_ns - started_ns, ticket.num_prompt_tokens, in_flight))
        self._queue.generated(ticket, num_tokens, now_ns)

    def refused(self) -> None:
        """The engine would not take a call for its own sake."""
        self._move(failed(self._gradient))

    def _move(self, gradient: Gradient) -> None:
        self._gradient = gradient
        self._queue.num_places = gradient.num_places
        self._carry_out(self._queue.turns(self._clock.now_ns()))

    def _carry_out(self, turns: Turns) -> None:
        for ticket in turns.displace:
            self._places[ticket].displaced.set()
        in_flight = len(self._queue.running)
        for ticket in turns.start:
            place = self._places[ticket] = Place(self, ticket, self._clock.now_ns(), in_flight)
            if not self._starts[ticket].done():  # else it has given up and is about to leave
                self._starts[ticket].set_result(place)
