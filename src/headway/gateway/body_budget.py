"""How much of all bodies that are being received may be in memory. It knows no HTTP.

One body is bounded by itself; thousands of connections that each send most of one, slowly, are bounded here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headway.core.errors import QueueFull

FREE_BYTES: Final = 64 * 1024
"""Of each body, not counted: so that many large bodies keep no ordinary request out. 4,096 of them are 256 MiB."""


class BodyBudget:
    """What bodies may take together. It belongs to one event loop."""

    def __init__(self, max_bytes: int) -> None:
        self._left_bytes = max_bytes

    @contextmanager
    def body(self) -> Iterator["Body"]:
        """Count one body while it is held."""
        body = Body(self)
        try:
            yield body
        finally:
            self._left_bytes += body.counted_bytes

    def take(self, num_bytes: int) -> None:
        """Take from what is left; raises QueueFull."""
        if num_bytes > self._left_bytes:
            raise QueueFull("Too many large requests are being received; send the request again later.")
        self._left_bytes -= num_bytes


class Body:
    """One body's part of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.num_bytes = 0
        self.counted_bytes = 0

    def grow(self, num_bytes: int) -> None:
        """Count more bytes of it; raises QueueFull if they are too many."""
        self.num_bytes += num_bytes
        more = max(0, self.num_bytes - FREE_BYTES) - self.counted_bytes
        self._budget.take(more)
        self.counted_bytes += more
