"""Gives the requests of a remote engine their turns: what its client asks for, carried out by the gate.

The prompts that wait are bounded in tokens too, by class, so that no flood of a worse one refuses a better one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headway.core.caller import Caller
from headway.core.errors import Displaced, HeadwayError, QueueFull
from headway.core.request import Request, ServiceClass
from headway.flow.remote import RETRY_S, Place, RemoteGate


class RemoteTurns:
    """`engine.remote_turns.Turns` over a gate. `max_waiting_tokens`: of the prompts of each class."""

    def __init__(self, gate: RemoteGate, *, max_waiting_tokens: int) -> None:
        self._gate = gate
        self._max_waiting_tokens = max_waiting_tokens
        self._waiting: dict[ServiceClass, int] = {"high": 0, "normal": 0, "low": 0}

    @property
    def num_places(self) -> int:
        """See `engine.remote_turns.Turns`."""
        return self._gate.num_places

    @asynccontextmanager
    async def place(self, request: Request, end: Callable[[HeadwayError], None]) -> AsyncIterator[Place]:
        """Wait for a place and hold it; raises QueueFull, at once or while it waits."""
        rank, num_tokens = request.service_class, len(request.token_ids) * request.n
        full = self._waiting[rank] + num_tokens > self._max_waiting_tokens
        if full and self._waiting[rank] and not request.resumes:
            raise QueueFull(
                "Too many prompt tokens wait for this model's engine; retry later.", retry_after_s=RETRY_S
            )
        caller = Caller(service_class=rank, tenant=request.tenant)
        self._waiting[rank] += num_tokens
        waits = True
        try:
            async with self._gate.place(caller, num_tokens) as place:
                self._waiting[rank] -= num_tokens
                waits = False
                watch = asyncio.create_task(_tell_displaced(place, end))
                try:
                    yield place
                finally:
                    watch.cancel()
        finally:
            if waits:
                self._waiting[rank] -= num_tokens

    def refused(self) -> None:
        """The engine took no request for its own sake, or could not be reached."""
        self._gate.refused()


async def _tell_displaced(place: Place, end: Callable[[HeadwayError], None]) -> None:
    await place.displaced.wait()
    try:
        place.check()
    except Displaced as error:
        end(error)
