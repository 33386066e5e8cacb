"""Lines of those who wait, one for each of whom they are, and whose latest goes where too much waits. It knows no clock.

Whoever floods pushes out himself (longest queue drop: Suter and others, INFOCOM 1998). The engine's own queue is bounded
alike by counts alone (`engine/queue_counts.py`), as its requests wait among those that run.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Generic, Protocol, TypeVar


class Waiting(Hashable, Protocol):
    """Who waits."""

    @property
    def order(self) -> int:
        """That of arrival among all."""
        ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Waiting)


class Lines(Generic[K, T]):
    """Owns the lines that are not empty, by key. Each who waits may leave from any place, at the same small cost."""

    def __init__(self) -> None:
        self._lines: dict[K, dict[T, None]] = {}
        self._num_waiting = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._num_waiting

    def __iter__(self) -> Iterator[K]:
        """Yield whose lines there are."""
        return iter(self._lines)

    def append(self, key: K, one: T) -> None:
        """Let one wait."""
        self._lines.setdefault(key, {})[one] = None
        self._num_waiting += 1

    def first(self, key: K) -> T:
        """Return who has waited longest in a line."""
        return next(iter(self._lines[key]))

    def remove(self, key: K, one: T) -> bool:
        """Take one out of his line; return whether he waited."""
        line = self._lines.get(key, {})
        if one not in line:
            return False
        del line[one]
        self._num_waiting -= 1
        if not line:
            del self._lines[key]
        return True

    def crowded_out(self, size: Callable[[Collection[T]], int] = len) -> T | None:
        """Return the latest of the largest line, of lines as large whoever came last; None where nobody waits."""
        largest = max(
            self._lines.values(), key=lambda line: (size(line.keys()), _last(line).order), default=None
        )
        return None if largest is None else _last(largest)


def _last(line: dict[T, None]) -> T:
    return next(reversed(line))
