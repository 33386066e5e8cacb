"""Virtual time: what happens when, in one order that depends on nothing else.

Discrete-event simulation in its plainest form: a heap of (time, kind, number). Things of one time happen by kind, then in
the order in which they were planned.
"""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush


class Kind(IntEnum):
    """What comes first of things that happen at one time: what a step gave, then requests, then the next step."""

    DELIVER = 0
    ARRIVE = 1
    STEP = 2


class Timeline:
    """Owns the time of a simulation and all that is planned."""

    def __init__(self) -> None:
        """Begins at 0 ns with nothing planned."""
        self.now_ns = 0
        self._heap: list[tuple[int, Kind, int, Callable[[], None]]] = []
        self._num_planned = 0

    def at(self, time_ns: int, kind: Kind, action: Callable[[], None]) -> None:
        """Plan `action`; raises ValueError for a time that has passed."""
        if time_ns < self.now_ns:
            raise ValueError(f"{self.now_ns - time_ns} ns too late to plan anything")
        self._num_planned += 1
        heappush(self._heap, (time_ns, kind, self._num_planned, action))

    def run(self) -> None:
        """Let time pass until nothing is planned any more."""
        heap = self._heap
        while heap:
            self.now_ns, _, _, action = heappop(heap)
            action()
