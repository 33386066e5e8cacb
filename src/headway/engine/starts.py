"""Which waiting sequences start in a step: slots, memory, prefixes that another one computes, and whose place is taken.

Once one of them finds no place, nobody after it starts in that step: else small ones would keep a large one out for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Generic

from headway.engine.memory import Memory
from headway.engine.policies.policy import Policy, Queue
from headway.engine.prefixes import computing
from headway.engine.view import S


class Starts(Generic[S]):
    """What the step has started so far. Owned by one call of `plan`.

    running     who keeps its blocks, the one held least last
    lent        order of a running sequence → who waits for its blocks and is more urgent
    displaced   running sequences whose place was taken
    closed      nobody else can start in this step
    """

    def __init__(
        self, queue: Queue[S], policy: Policy, memory: Memory[S], running: Sequence[S], lent: Mapping[int, S]
    ) -> None:
        self.displaced: list[S] = []
        self._queue = queue
        self._displaces = policy.displaces
        self._memory = memory
        self._running = list(running)
        self._lent = lent
        self._computing = [s for s in running if not s.is_decoding]
        self._num_slots = queue.limits.max_num_seqs - len(running)
        self.closed = bool(memory.preempted) or self._no_slot  # who runs is short of memory already

    def shared(self, sequence: S) -> Sequence[int] | None:
        """Return the cached blocks that a waiting sequence would start from; None where it cannot start now."""
        if self.closed:
            return None
        if computing(self._queue.view, sequence, self._computing) is not None:
            return None
        return self._queue.view.match(sequence)

    def start(self, sequence: S, shared: Sequence[int]) -> bool:
        """Take slot and blocks for it, preempting worse classes where the policy lets it; return whether it starts."""
        memory = self._memory
        if self._num_slots <= 0 or memory.missing_to_start(sequence, shared) > memory.num_available:
            displaced = memory.displace(self._victims(sequence), sequence, shared, self._num_slots)
            if not displaced:
                self.closed = True
                return False
            self.displaced += displaced
            self._num_slots += len(displaced)
            lost = {victim.order for victim in displaced}
            self._running = [s for s in self._running if s.order not in lost]
            self._computing = [s for s in self._computing if s.order not in lost]
        memory.take(memory.missing_to_start(sequence, shared))
        self._num_slots -= 1
        self.closed = self._no_slot
        self._computing.append(sequence)
        return True

    @property
    def _no_slot(self) -> bool:
        """Whether there is no slot, and none can be taken."""
        return self._num_slots <= 0 and self._displaces is None

    def _victims(self, sequence: S) -> list[S]:
        if self._displaces is None or not self._displaces(self._queue, sequence):
            return []
        return [s for s in reversed(self._running) if self._lent.get(s.order, s).rank > sequence.rank]
