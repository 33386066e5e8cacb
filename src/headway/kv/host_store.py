"""KV blocks in memory outside the block pool, within a budget of bytes: the least recently used go first.

It knows no block ids and no disk. One thread.
"""

from headway.kv.stored_block import StoredBlock, Wanted


class HostStore:
    """Owns the blocks. `max_bytes` bounds keys, values and tokens, not Python's own overhead."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks: dict[bytes, StoredBlock] = {}  # insertion order is the order of the last use
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._blocks

    def touch(self, digest: bytes) -> None:
        """Note that a block was used; unknown ones are ignored."""
        block = self._blocks.pop(digest, None)
        if block is not None:
            self._blocks[digest] = block

    def put(self, block: StoredBlock) -> bool:
        """Keep `block`, for which others may have to go; return False if it alone exceeds the budget."""
        if block.num_bytes > self._max_bytes:
            return False
        self.drop(block.digest)
        self._blocks[block.digest] = block
        self.num_bytes += block.num_bytes
        while self.num_bytes > self._max_bytes:
            self.drop(next(iter(self._blocks)))
        return True

    def get(self, wanted: Wanted) -> StoredBlock | None:
        """Return a block, or None if it is not here. Its data has yet to be checked (`StoredBlock.is_intact`)."""
        block = self._blocks.get(wanted.digest)
        if block is None or not block.answers(wanted):
            return None
        self.touch(wanted.digest)
        return block

    def drop(self, digest: bytes) -> None:
        """Forget a block; unknown ones are ignored."""
        block = self._blocks.pop(digest, None)
        if block is not None:
            self.num_bytes -= block.num_bytes
