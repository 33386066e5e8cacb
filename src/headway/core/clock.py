"""Monotonic time in nanoseconds, injected so that tests can wind it.

Wall-clock time is a label only (the `created` field of a response); no interval is ever taken from it.
"""

import time
from datetime import UTC, datetime
from typing import Protocol

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def rfc3339(second: int) -> str:
    """Return a second since 1970 as people and programs read it: `2026-11-30T20:01:08Z`."""
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


class Clock(Protocol):
    """A source of monotonic time."""

    def now_ns(self) -> int:
        """Return nanoseconds since an arbitrary origin, never decreasing."""
        ...


class MonotonicClock:
    """The machine's monotonic clock; its values compare between processes of one machine."""

    def now_ns(self) -> int:
        """Return `time.monotonic_ns()`."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when a test winds it."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """Return the time the test has set."""
        return self._now_ns

    def advance(self, delta_ns: int) -> None:
        """Move forward by `delta_ns` nanoseconds; raises ValueError for a negative step."""
        if delta_ns < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._now_ns += delta_ns
