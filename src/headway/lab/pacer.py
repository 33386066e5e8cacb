"""Calls functions at absolute times, to a small fraction of a millisecond: what event loops' own timers cannot.

asyncio rounds a time-out up to the next millisecond, uvloop counts whole ones, and both start from a clock that was read
before. Here the kernel's timerfd (timerfd_create(2), by absolute time on CLOCK_MONOTONIC, the clock of `time.monotonic_ns`)
makes a file readable when the earliest call is due. Late calls are made at once, in order, never left out: what a stall
delays is seen.

A processor that has gone to sleep takes up to half a millisecond to wake, so `sleep_until` has itself woken a little early
and watches the clock until it is time; not where deadlines are so dense that this would take the processor from a server
beside it.
"""

import asyncio
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headway.core.clock import NS_PER_S

WATCH_NS = 300_000
"""How long the clock is watched before a deadline of `sleep_until`,"""
WATCHED_APART_NS = 20 * WATCH_NS
"""which is at least so long after the one before."""

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Pacer:
    """Belongs to one event loop; use it as a context manager, inside the loop. Linux alone."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = _checked(_libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS))
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()  # of calls at the same time, and so that functions are never compared
        self._armed_ns: int | None = None
        self._last_sleep_ns = 0

    def __enter__(self) -> Self:
        self._loop.add_reader(self._fd, self._fire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.remove_reader(self._fd)
        self._calls.clear()
        os.close(self._fd)

    def __len__(self) -> int:
        """Return how many calls are still to come."""
        return len(self._calls)

    def call_at(self, deadline_ns: int, function: Callable[[], None]) -> None:
        """Call `function` once the monotonic clock shows `deadline_ns`; at once, but not from here, if it does already.

        What it raises goes to the loop's exception handler. Calls that are still to come when the context manager ends are
        dropped.
        """
        heapq.heappush(self._calls, (deadline_ns, next(self._order), function))
        if self._armed_ns is None or deadline_ns < self._armed_ns:
            self._arm()

    async def sleep_until(self, deadline_ns: int) -> None:
        """Return once the monotonic clock shows `deadline_ns`."""
        watched = deadline_ns - self._last_sleep_ns >= WATCHED_APART_NS
        self._last_sleep_ns = deadline_ns
        woken: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not woken.done():  # else its waiter was cancelled
                woken.set_result(None)

        self.call_at(deadline_ns - WATCH_NS if watched else deadline_ns, wake)
        await woken
        while time.monotonic_ns() < deadline_ns:
            pass

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # armed anew since it became readable
            return
        self._armed_ns = None
        try:
            while self._calls and self._calls[0][0] <= time.monotonic_ns():
                heapq.heappop(self._calls)[2]()
        finally:
            self._arm()

    def _arm(self) -> None:
        if not self._calls:
            return
        deadline_ns = max(1, self._calls[0][0])  # zero would disarm it
        seconds, nanoseconds = divmod(deadline_ns, NS_PER_S)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        _checked(_libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None))
        self._armed_ns = deadline_ns


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
