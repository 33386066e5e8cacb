"""Who runs and who waits: every living sequence is in exactly one of the two. It knows no blocks and no requests."""

from bisect import bisect_left, insort
from collections.abc import Sequence as ReadOnly
from operator import attrgetter

from headway.engine.sequence import Sequence

_by_order = attrgetter("order")


class Roster:
    """Sequences by their place in arrival, `order`."""

    def __init__(self) -> None:
        self._running: dict[int, Sequence] = {}
        self._waiting: list[Sequence] = []  # sorted by order

    @property
    def running(self) -> ReadOnly[Sequence]:
        """Sequences that hold blocks, in the order they started."""
        return list(self._running.values())

    @property
    def waiting(self) -> ReadOnly[Sequence]:
        """Sequences that hold none, by arrival: the live list, not a copy."""
        return self._waiting

    @property
    def num_running(self) -> int:
        """How many run."""
        return len(self._running)

    def enqueue(self, sequence: Sequence) -> None:
        """Let a new or preempted sequence wait at its place in arrival; a preempted one comes before all later ones."""
        self._running.pop(sequence.order, None)
        if self._waiting and self._waiting[-1].order > sequence.order:
            insort(self._waiting, sequence, key=_by_order)
        else:
            self._waiting.append(sequence)

    def start(self, sequence: Sequence) -> None:
        """Let a waiting sequence run."""
        self._remove_waiting(sequence)
        self._running[sequence.order] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is."""
        if self._running.pop(sequence.order, None) is None:
            self._remove_waiting(sequence)

    def check(self) -> None:
        """Raise AssertionError unless the lists are sound."""
        orders = [sequence.order for sequence in self._waiting]
        assert orders == sorted(set(orders)), "the queue is out of order"
        assert not self._running.keys() & set(orders), "a sequence runs and waits"
        assert all(not sequence.table for sequence in self._waiting), "a waiting sequence holds blocks"

    def _remove_waiting(self, sequence: Sequence) -> None:
        del self._waiting[bisect_left(self._waiting, sequence.order, key=_by_order)]
