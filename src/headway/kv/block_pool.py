"""Which KV blocks are free, used, or kept only because the prefix cache may want them again.

A block is in exactly one of three states:

    free        no references, content worthless
    used        references > 0: in the block table of that many sequences
    evictable   no references, but cached: content may be shared again; taken back least recently used first

Of the evictable, those that somebody is expected to come back for (`keep`) are taken last. They may be half of the pool;
beyond that the least recently used of them are as good as any.

It knows block ids only: no tokens, no hashes, no bytes. The paged layout is that of vLLM (arXiv 2309.06180, section 4).
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_KEPT_SHARE = 0.5
"""Of the pool, what idle conversations may hold on to: who is here now needs room, too."""


class OutOfBlocks(Exception):
    """More blocks were asked for than are free or evictable; nothing was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStatistics:
    """How many blocks are in which state; the three states add up to `num_blocks`."""

    num_blocks: int
    num_free: int
    num_used: int
    num_evictable: int


def _ignore_eviction(_block: int) -> None:
    """Nobody caches blocks."""


class BlockPool:
    """Owns the ids 0 … num_blocks - 1, each standing for `block_size` token slots.

    `on_evict(block)` is called when a cached block is taken back, before it is handed out again.
    """

    def __init__(
        self, num_blocks: int, block_size: int, on_evict: Callable[[int], None] = _ignore_eviction
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and slots, got {num_blocks} blocks of {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._on_evict = on_evict
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: the block used last is warm in the caches
        self._references = [0] * num_blocks
        self._cached = [False] * num_blocks
        self._evictable: dict[int, None] = {}  # insertion order is the order of the last release
        self._kept: dict[int, None] = {}  # as above: what is evictable, but last
        self._is_kept = [False] * num_blocks
        self._max_kept = int(num_blocks * MAX_KEPT_SHARE)
        self.num_ever_used = 0
        """Blocks from here on were never given to anybody."""

    @property
    def num_available(self) -> int:
        """Blocks that `allocate_nowait` can give: free and evictable."""
        return len(self._free) + len(self._evictable) + len(self._kept)

    def references(self, block: int) -> int:
        """Return how many block tables hold `block`."""
        return self._references[block]

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate_nowait(self, count: int) -> list[int]:
        """Take `count` blocks, each with one reference, evicting cached ones if need be; raises OutOfBlocks."""
        if count > self.num_available:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_available} available")
        taken = []
        for _ in range(count):
            if self._free:
                block = self._free.pop()
            else:
                block = next(iter(self._evictable or self._kept))
                self._on_evict(block)
                self._uncache(block)
            self._references[block] = 1
            self.num_ever_used = max(self.num_ever_used, block + 1)
            taken.append(block)
        return taken

    def retain(self, block: int) -> None:
        """Add a reference to a used or evictable block; raises ValueError for a free one."""
        if self._references[block] == 0:
            if not self._cached[block]:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._evictable.pop(block, None)
            self._kept.pop(block, None)
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop one reference; the last one makes the block free, or evictable if it is cached."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} has no reference to release")
        self._references[block] -= 1
        if self._references[block] == 0:
            if not self._cached[block]:
                self._free.append(block)
            elif self._is_kept[block]:
                self._kept[block] = None
                if len(self._kept) > self._max_kept:
                    self.unkeep(next(iter(self._kept)))
            else:
                self._evictable[block] = None

    def keep(self, block: int) -> None:
        """Let a used, cached block be evicted after those that nobody is expected to come back for."""
        if self._references[block] == 0 or not self._cached[block]:
            raise ValueError(f"block {block} is not used and cached, and cannot be kept")
        self._is_kept[block] = True

    def unkeep(self, block: int) -> None:
        """Take `keep` back. Of a prefix, call it for the last block first: they are evicted in that order."""
        self._is_kept[block] = False
        if block in self._kept:
            del self._kept[block]
            self._evictable[block] = None

    def free(self, block: int) -> None:
        """Give up an evictable block's content; raises ValueError for one that is used, or free already."""
        if self._references[block] or not self._cached[block]:
            raise ValueError(f"block {block} is not evictable")
        self._uncache(block)
        self._free.append(block)

    def mark_cached(self, block: int) -> None:
        """Keep the content of a used block after its last release, until the space is needed."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} is not in use and cannot become cached")
        self._cached[block] = True

    def _uncache(self, block: int) -> None:
        self._evictable.pop(block, None)
        self._kept.pop(block, None)
        self._cached[block] = self._is_kept[block] = False

    def release_table(self, table: "array[int]") -> None:
        """Release every block of `table` and empty it. The last block goes first, so that a prefix outlives its tail."""
        while table:
            self.release(table.pop())

    def truncate(self, table: "array[int]", num_tokens: int) -> None:
        """Shorten `table` in place to the blocks that hold its first `num_tokens` tokens.

        Raises ValueError when the cut would leave a cached or shared block half used: its remaining slots would be
        written again, under everybody who shares it.
        """
        keep = self.blocks_for(num_tokens)
        if keep > len(table):
            raise ValueError(f"{num_tokens} tokens do not fit the table's {len(table)} blocks")
        if num_tokens % self.block_size and (
            self._cached[table[keep - 1]] or self._references[table[keep - 1]] > 1
        ):
            raise ValueError(f"block {table[keep - 1]} is shared and cannot be cut at token {num_tokens}")
        while len(table) > keep:
            self.release(table.pop())

    def statistics(self) -> BlockStatistics:
        """Return the counts of this moment."""
        num_free, num_evictable = len(self._free), len(self._evictable) + len(self._kept)
        return BlockStatistics(
            num_blocks=self.num_blocks,
            num_free=num_free,
            num_used=self.num_blocks - num_free - num_evictable,
            num_evictable=num_evictable,
        )

    def cached_blocks(self) -> set[int]:
        """Return every block marked as cached, used or evictable."""
        return {block for block in range(self.num_blocks) if self._cached[block]}

    def check(self, tables: "Iterable[array[int]] | None" = None) -> None:
        """Raise AssertionError unless every invariant holds; with `tables`, unless they hold exactly all references."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        for block in range(self.num_blocks):
            used = self._references[block] > 0
            assert self._references[block] >= 0, f"block {block} has negative references"
            evictable = (block in self._evictable) + (block in self._kept)
            assert (block in free) + evictable + used == 1, f"block {block} is in two states or none"
            assert not evictable or self._cached[block], f"block {block} is evictable but not cached"
            assert block not in self._kept or self._is_kept[block], f"block {block} is kept for nobody"
            assert self._cached[block] or not self._is_kept[block], f"block {block} is kept but not cached"
            assert block not in free or not self._cached[block], f"block {block} is free but cached"
        assert len(self._kept) <= self._max_kept, "too many blocks are kept"
        if tables is not None:
            counted = [0] * self.num_blocks
            for table in tables:
                for block in table:
                    counted[block] += 1
            assert counted == self._references, "references differ from what the block tables hold"
