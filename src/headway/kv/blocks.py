"""Block pool and prefix cache as one: what the engine asks about KV memory.

It keeps the two in step: a block that the cache names survives its last release, and an evicted block loses its name. It
knows no sequences: the caller brings block tables (`array('i')`, mutated in place) and chains.
"""

from array import array
from collections.abc import Callable, Iterable

from headway.kv.block_pool import BlockPool
from headway.kv.prefix_cache import Digest, PrefixCache, PrefixChain, blake2b_digest

OnEvict = Callable[[int], None]
"""Hears of a block that is about to lose its content, while the cache still names it."""


def _ignore_eviction(_block: int) -> None:
    """Nobody wants the content."""


class KvBlocks:
    """Owns every KV block of one runner. `on_evict` is called for blocks whose space is needed, not for those dropped."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        digest: Digest = blake2b_digest,
        on_evict: OnEvict = _ignore_eviction,
    ) -> None:
        self.cache = PrefixCache()
        self.pool = BlockPool(num_blocks, block_size, on_evict=self._evict)
        self._digest = digest
        self._on_evict = on_evict

    def _evict(self, block: int) -> None:
        self._on_evict(block)
        self.cache.forget(block)

    def new_chain(self, salt: str, adapter_id: int) -> PrefixChain:
        """Return the empty chain of the cache partition (salt, adapter)."""
        return PrefixChain((salt, adapter_id), self.pool.block_size, self._digest)

    def match(self, chain: PrefixChain, num_tokens: int) -> list[int]:
        """Return the cached blocks that a sequence of `num_tokens` may start from.

        At least its last token is left to compute, since its logits are needed; so a prompt that ends with a block
        recomputes that block.
        """
        return self.cache.match(chain, (num_tokens - 1) // self.pool.block_size)

    def open_table(self, table: "array[int]", shared: Iterable[int]) -> None:
        """Begin an empty `table` with blocks that `match` gave."""
        if table:
            raise ValueError("only an empty block table can start from shared blocks")
        for block in shared:
            self.pool.retain(block)
            table.append(block)

    def grow(self, table: "array[int]", num_tokens: int) -> None:
        """Extend `table` to hold `num_tokens` tokens; raises OutOfBlocks and then changes nothing."""
        missing = self.pool.blocks_for(num_tokens) - len(table)
        if missing > 0:
            table.extend(self.pool.allocate_nowait(missing))

    def commit(self, table: "array[int]", chain: PrefixChain, first: int, last: int) -> bool:
        """Make the computed blocks `first` … `last - 1` of `table` shareable; their predecessors already are.

        Where the same content is cached already, that block replaces ours. Returns False when the chain ran into another
        content with the same digest: it must not be committed further.
        """
        for index in range(first, last):
            parent = table[index - 1] if index else None
            block = self.cache.insert(chain, index, table[index], parent)
            if block is None:
                return False
            if block == table[index]:
                self.pool.mark_cached(block)
            else:
                self.pool.retain(block)
                self.pool.release(table[index])
                table[index] = block
        return True

    def unkeep(self, digests: Iterable[bytes]) -> None:
        """Let blocks be evicted like any; of a prefix, the last digest comes first."""
        for digest in digests:
            block = self.cache.find(digest)
            if block is not None:
                self.pool.unkeep(block)

    def drop(self, digests: Iterable[bytes]) -> None:
        """Free blocks that no sequence holds and no cached block follows; of a prefix, the last digest comes first."""
        for digest in digests:
            block = self.cache.find(digest)
            if block is not None and not self.pool.references(block) and not self.cache.has_children(block):
                self.cache.forget(block)
                self.pool.free(block)

    def check(self, tables: "Iterable[array[int]] | None" = None) -> None:
        """Raise AssertionError unless pool and cache are sound and agree, and `tables` hold all references."""
        self.pool.check(tables)
        self.cache.check(self.pool.cached_blocks())
