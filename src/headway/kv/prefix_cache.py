"""Finds the KV blocks that already hold the beginning of a sequence.

Each full block of a sequence has a key: a digest over (the previous block's digest, its own tokens), rooted in (salt,
adapter). Equal digests mean equal beginnings, so one dictionary serves every prefix. Digests are BLAKE2b (RFC 7693) of
128 bits; nothing rests on their being unique, though: an entry remembers its tokens and its parent entry, and both are
compared on every hit, which by induction compares the whole beginning.

It knows no reference counts and no memory; `KvBlocks` joins it to the block pool. The idea of keying blocks by a chain of
hashes is vLLM's automatic prefix caching; the comparison and the parent links are ours.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

Digest = Callable[[bytes, bytes], bytes]
"""Maps (digest of the previous block, this block's token bytes) to this block's digest."""

DIGEST_BYTES = 16
"""Collisions cost a miss, never a wrong answer, so 128 bits are ample."""


def blake2b_digest(parent: bytes, tokens: bytes) -> bytes:
    """Return the digest of a block whose previous block has the digest `parent`."""
    return blake2b(parent + tokens, digest_size=DIGEST_BYTES).digest()


class BlockKey(NamedTuple):
    """The name of a full block's content: `digest` of everything up to it, and its own tokens as int32 bytes."""

    digest: bytes
    tokens: bytes


class PrefixChain:
    """The keys of a sequence's full blocks, from its beginning. Grows and is cut with the sequence."""

    __slots__ = ("_digest", "block_size", "keys", "root")

    def __init__(self, root: tuple[str, int], block_size: int, digest: Digest = blake2b_digest) -> None:
        self.root = root
        self.keys: list[BlockKey] = []
        self.block_size = block_size
        self._digest = digest

    @property
    def root_bytes(self) -> bytes:
        """The cache partition, as it begins every digest."""
        return repr(self.root).encode()

    def extend(self, tokens: "array[int]", num_tokens: int) -> None:
        """Add the keys of all blocks that the first `num_tokens` of `tokens` fill."""
        size = self.block_size
        for index in range(len(self.keys), num_tokens // size):
            content = tokens[index * size : (index + 1) * size].tobytes()
            parent = self.keys[-1].digest if self.keys else self.root_bytes
            self.keys.append(BlockKey(self._digest(parent, content), content))

    def truncate(self, num_tokens: int) -> None:
        """Drop the keys of blocks that `num_tokens` tokens do not fill."""
        del self.keys[num_tokens // self.block_size :]

    def copy(self) -> "PrefixChain":
        """Return an independent chain with the same keys, for another sequence of the same beginning."""
        twin = PrefixChain(self.root, self.block_size, self._digest)
        twin.keys = list(self.keys)
        return twin


@dataclass(slots=True, eq=False)
class _Entry:
    """A cached block. Two entries are equal only if they are the same object: that carries the proof of the beginning."""

    key: BlockKey
    parent: "_Entry | tuple[str, int]"
    block: int
    num_children: int = 0


class PrefixCache:
    """Maps chains of block keys to blocks. Every entry's parent is in the cache, too."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._by_block: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def match(self, chain: PrefixChain, limit: int) -> list[int]:
        """Return the blocks that hold the beginning of `chain`, at most `limit` of them."""
        blocks = []
        parent: _Entry | tuple[str, int] = chain.root
        for key in chain.keys[:limit]:
            entry = self._entries.get(key.digest)
            if entry is None or entry.parent != parent or entry.key.tokens != key.tokens:
                break
            blocks.append(entry.block)
            parent = entry
        return blocks

    def insert(self, chain: PrefixChain, index: int, block: int, parent_block: int | None) -> int | None:
        """Offer `block` as the block of `chain.keys[index]`; return the block that holds this content from now on.

        `parent_block` holds the chain's previous block and is cached; None for index 0. The answer is `block` itself, or the
        block that was there first (bit-equal: the caller may use either), or None when another content has this digest
        (the chain must not be offered further).
        """
        key = chain.keys[index]
        parent = chain.root if parent_block is None else self._by_block[parent_block]
        entry = self._entries.get(key.digest)
        if entry is None:
            self._entries[key.digest] = self._by_block[block] = _Entry(key, parent, block)
            if isinstance(parent, _Entry):
                parent.num_children += 1
            return block
        if entry.parent != parent or entry.key.tokens != key.tokens:
            return None
        return entry.block

    def forget(self, block: int) -> None:
        """Drop the entry of a block that is evicted."""
        entry = self._by_block.pop(block)
        del self._entries[entry.key.digest]
        if isinstance(entry.parent, _Entry):
            entry.parent.num_children -= 1

    def find(self, digest: bytes) -> int | None:
        """Return the block that is cached under a digest, whatever it stands for."""
        entry = self._entries.get(digest)
        return None if entry is None else entry.block

    def has_children(self, block: int) -> bool:
        """Return whether a cached block follows `block`, which is cached."""
        return self._by_block[block].num_children > 0

    def digest(self, block: int) -> bytes:
        """Return what a cached block is filed under."""
        return self._by_block[block].key.digest

    def parent(self, block: int) -> int | None:
        """Return the block before a cached one, which is cached, too; None for a first block."""
        parent = self._by_block[block].parent
        return parent.block if isinstance(parent, _Entry) else None

    def content(self, block: int) -> tuple[bytes, bytes]:
        """Return what a cached block stands for: its partition (`PrefixChain.root_bytes`) and all tokens up to its end."""
        parts: list[bytes] = []
        place: _Entry | tuple[str, int] = self._by_block[block]
        while isinstance(place, _Entry):
            parts.append(place.key.tokens)
            place = place.parent
        return repr(place).encode(), b"".join(reversed(parts))

    def check(self, cached_blocks: set[int]) -> None:
        """Raise AssertionError unless the entries stand for exactly `cached_blocks` and every parent is present."""
        assert set(self._by_block) == cached_blocks, (
            "the pool and the prefix cache disagree on what is cached"
        )
        assert len(self._by_block) == len(self._entries), "a block stands for two contents"
        children = Counter(id(entry.parent) for entry in self._by_block.values())
        for block, entry in self._by_block.items():
            assert entry.block == block, "an entry is filed under another block"
            assert self._entries[entry.key.digest] is entry, "an entry is filed under another digest"
            assert children[id(entry)] == entry.num_children, "an entry's children are miscounted"
            if isinstance(entry.parent, _Entry):
                assert self._by_block.get(entry.parent.block) is entry.parent, "a block outlived its prefix"
