"""Brings blocks back that were computed earlier and left the block pool (`kv.tiers`), instead of computing them again.

A sequence that restores holds its blocks and is not computed; others go on. Bytes may come at any time, from another
thread; they are written between two steps, in order, a bounded number at a time. What is lost on the way, or damaged, ends
the restoring there: the rest is computed. Nothing is written for a sequence that was cancelled.
"""

import logging
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

from headway.engine.sequence import Sequence
from headway.kv.bandwidth import num_worth_restoring
from headway.kv.stored_block import Wanted
from headway.kv.tiers import Fetch, Tiers

logger = logging.getLogger(__name__)

MAX_BYTES_PER_STEP = 8 << 20
"""What is written into blocks between two steps: 8 ms at the rate assumed of memory, which running streams can bear."""

WriteBlock = Callable[[int, bytes], None]


@dataclass(slots=True, eq=False)
class _Restore:
    """One sequence's blocks on their way back. `num_first`: its blocks before them; `num_done`: those written."""

    sequence: Sequence
    num_first: int
    fetches: deque[Fetch]
    num_done: int = 0


class Restores:
    """Owns what is on its way back.

    block_bytes            what one block takes
    prefill_tokens_per_s   how fast prompts are computed; None = not known yet
    """

    def __init__(
        self,
        tiers: Tiers,
        write_block: WriteBlock,
        block_bytes: int,
        prefill_tokens_per_s: Callable[[], float | None],
    ) -> None:
        self._tiers = tiers
        self._write_block = write_block
        self._block_bytes = block_bytes
        self._prefill_tokens_per_s = prefill_tokens_per_s
        self._restores: dict[int, _Restore] = {}  # by the sequence's order; first begun, first served

    @property
    def must_wait(self) -> bool:
        """Whether something is on its way, and there is nothing for `advance` to do."""
        return bool(self._restores) and not any(r.fetches[0].is_done for r in self._restores.values())

    def num_restorable(self, sequence: Sequence, num_shared: int) -> int:
        """Return how many blocks behind the first `num_shared` are quicker to bring back than to compute."""
        if not self._tiers or not sequence.shares:
            return 0
        limit = (sequence.num_tokens - 1) // sequence.chain.block_size  # the last token's logits are needed
        if num_shared >= limit:
            return 0
        return num_worth_restoring(
            self._tiers.find(sequence.keys[num_shared:limit]),
            block_bytes=self._block_bytes,
            block_size=sequence.chain.block_size,
            prefill_tokens_per_s=self._prefill_tokens_per_s(),
        )

    def begin(self, sequence: Sequence, num_first: int, num_blocks: int) -> bool:
        """Ask for the `num_blocks` behind the first `num_first` of `sequence`; return whether any is there."""
        last = num_first + num_blocks
        keys = sequence.keys[:last]
        tokens, root = b"".join(key.tokens for key in keys), sequence.chain.root_bytes
        fetches: deque[Fetch] = deque()
        end = sum(len(key.tokens) for key in keys[:num_first])
        for key in keys[num_first:]:
            end += len(key.tokens)
            fetch = self._tiers.fetch(Wanted(key.digest, root, tokens, end))
            if fetch is None:
                break
            fetches.append(fetch)
        if fetches:
            self._restores[sequence.order] = _Restore(sequence, num_first, fetches)
        return bool(fetches)

    def advance(self) -> tuple[int, list[tuple[Sequence, int]]]:
        """Write what has come; return how many blocks that were, and the sequences that are done with theirs."""
        left_bytes, num_written = MAX_BYTES_PER_STEP, 0
        done: list[tuple[Sequence, int]] = []
        for restore in list(self._restores.values()):
            while restore.fetches and restore.fetches[0].is_done and left_bytes > 0:
                if not self._put_back(restore):
                    _cancel(restore.fetches)
                    restore.fetches.clear()
                    break
                restore.num_done += 1
                num_written += 1
                left_bytes -= self._block_bytes
            if not restore.fetches:
                del self._restores[restore.sequence.order]
                done.append((restore.sequence, restore.num_done))
        return num_written, done

    def cancel(self, sequence: Sequence) -> None:
        """Forget what is on its way to `sequence`, if anything."""
        restore = self._restores.pop(sequence.order, None)
        if restore is not None:
            _cancel(restore.fetches)

    def check(self, running: ReadOnly[Sequence]) -> None:
        """Raise AssertionError unless exactly the sequences that restore are served. For tests."""
        restoring = {sequence.order for sequence in running if sequence.is_restoring}
        assert restoring == self._restores.keys(), (
            "a sequence waits for blocks that will not come, or is gone"
        )

    def _put_back(self, restore: _Restore) -> bool:
        fetch = restore.fetches.popleft()
        block = restore.sequence.table[restore.num_first + restore.num_done]
        try:
            return self._tiers.put_back(fetch, lambda data: self._write_block(block, data))
        except ValueError:  # another size: what is there cannot be this model's
            logger.exception("a KV block could not be restored; it is computed")
            return False


def _cancel(fetches: deque[Fetch]) -> None:
    for fetch in fetches:
        fetch.is_cancelled = True
