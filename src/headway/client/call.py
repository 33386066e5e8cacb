"""One call while it runs: its times, its budget, and the way its parts wake whoever waits for it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from headway.client.ask import Ask
from headway.client.http import Http
from headway.client.policy import Endpoint
from headway.core.clock import NS_PER_S, Clock


@dataclass(slots=True)
class Budget:
    """Requests beyond the first of each endpoint that a call may still make: retries and resumes together."""

    left: int

    def take(self) -> None:
        """Spend one."""
        self.left -= 1

    def give_back(self) -> None:
        """Take one back: a resume that brought the stream forward cost nobody anything."""
        self.left += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What every part of a call needs.

    jitter      drawn for this call, within [0, 1)
    background  runs what nobody waits for, such as telling a server that its stream is not wanted any more
    no_suffix   places of endpoints that are known not to fill in the middle; learned while calls run
    """

    ask: Ask
    endpoints: tuple[Endpoint, ...]
    http: Http
    clock: Clock
    start_ns: int
    first_token_ns: int
    end_ns: int
    idle_ns: int
    budget: Budget
    jitter: float
    background: Callable[[Coroutine[object, object, None]], None]
    no_suffix: set[int]
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, until_ns: int) -> None:
        """Wait until something has happened, or until then."""
        left_s = max(0, until_ns - self.clock.now_ns()) / NS_PER_S
        timer = asyncio.get_running_loop().call_later(left_s, self.wake.set)
        try:
            await self.wake.wait()
        finally:
            timer.cancel()
        self.wake.clear()
