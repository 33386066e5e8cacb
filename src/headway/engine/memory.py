"""Blocks in planning: what a step takes and what preempting gives, while nothing is changed yet."""

from collections.abc import Iterable, Sequence
from typing import Generic

from headway.engine.view import S, View


class Memory(Generic[S]):
    """What is available after all that was planned so far. Owned by one call of `plan`.

    preempted   who gives its blocks back, in order
    """

    def __init__(self, view: View[S]) -> None:
        self._view = view
        self.num_available = view.num_available
        self.preempted: list[S] = []
        self._released: dict[int, int] = {}  # block → holders that let go

    def missing_to_decode(self, sequence: S) -> int:
        """Return how many more blocks a decoding sequence needs for its tokens."""
        return max(0, -(-sequence.num_tokens // self._view.block_size) - len(sequence.table))

    def missing_to_start(self, sequence: S, shared: Sequence[int]) -> int:
        """Return how many available blocks a start takes: for all tokens at once, cached ones that nobody holds included."""
        missing = -(-sequence.num_tokens // self._view.block_size) - len(shared)
        released, references = self._released, self._view.references
        return missing + sum(references(block) == released.get(block, 0) for block in shared)

    def take(self, num_blocks: int) -> None:
        """Give out blocks that are available."""
        self.num_available -= num_blocks

    def preempt(self, victim: S) -> None:
        """Take `victim`'s blocks; those that others hold stay with them."""
        self.preempted.append(victim)
        released = self._released
        for block in victim.table:
            released[block] = released.get(block, 0) + 1
            self.num_available += released[block] == self._view.references(block)

    def displace(self, victims: Iterable[S], sequence: S, shared: Sequence[int], num_slots: int) -> list[S]:
        """Preempt the first of `victims` until `sequence` can start: a slot is free and blocks suffice.

        Returns who was preempted; nobody where all of them are not enough.
        """
        before = self.num_available, len(self.preempted), dict(self._released)
        displaced: list[S] = []
        for victim in victims:
            self.preempt(victim)
            displaced.append(victim)
            if (
                num_slots + len(displaced) > 0
                and self.missing_to_start(sequence, shared) <= self.num_available
            ):
                return displaced
        self.num_available, num_preempted, self._released = before
        del self.preempted[num_preempted:]
        return []
