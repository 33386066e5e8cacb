"""An event loop in which a second passes when nothing else can happen: what is scripted takes no time and is exact.

Sockets work, as long as both ends are here and bytes are there as soon as they are written: Unix sockets' are.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headway.core.clock import NS_PER_S

T = TypeVar("T")


class _Selector(selectors.EpollSelector):
    """Lets time pass instead of waiting."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self._loop.now += round(timeout * NS_PER_S)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop, and a clock (`core.clock.Clock`)."""

    def __init__(self) -> None:
        self.now = NS_PER_S
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now / NS_PER_S

    def now_ns(self) -> int:
        return self.now


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main`, which gets the clock, to its end in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
