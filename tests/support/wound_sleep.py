"""Sleep that ends when a test winds the clock."""

import asyncio

from headway.core.clock import NS_PER_S, ManualClock


class WoundSleep:
    """Sleeps of code under test, on a clock that only `wind` moves."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self.asked_s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Sleep."""
        self.asked_s.append(seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._clock.now_ns() + round(seconds * NS_PER_S), future))
        await future

    def wind(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.advance(round(seconds * NS_PER_S))
        now_ns = self._clock.now_ns()
        due = [future for end_ns, future in self._sleepers if end_ns <= now_ns]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > now_ns]
        for future in due:
            if not future.done():
                future.set_result(None)
