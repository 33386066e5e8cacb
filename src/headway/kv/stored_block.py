"""A KV block outside the block pool: whose bytes they are, and whether they are still what was stored.

A block is filed under its prefix chain's digest, but nothing rests on digests being unique: what was stored names the whole
beginning of its sequence (the cache partition and every token up to the block's end), and all of it is compared. That
costs 4 bytes a token and block, 1 to 3 % of what the keys and values take at usual lengths.

The checksum is CRC-32 (zlib's): it is there for torn files and flipped bits, not for people, who could write a right one,
too; and it runs at 4.3 GB/s where BLAKE2b runs at 0.95 (docs/log.md), which a step would feel. It knows no tiers.
"""

import struct
import zlib
from dataclasses import dataclass, field

MAGIC = b"HWKVBLK1"
_HEADER = struct.Struct("<8sI")  # magic, checksum of all that follows but the data
_LENGTHS = struct.Struct("<IIQI")  # of root, beginning and data; the data's checksum
_ROOT_AT = _HEADER.size + _LENGTHS.size


class BadBlock(Exception):
    """The bytes are not a stored block, or not what was stored."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block that is looked for: the one that ends `num_bytes` into `tokens`.

    digest     its key in the prefix chain
    root       the cache partition, as `PrefixChain.root_bytes` has it
    tokens     int32 tokens of its sequence, from the first one
    """

    digest: bytes
    root: bytes
    tokens: bytes
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block's bytes, and what they are the keys and values of.

    beginning  int32 tokens from the first of the sequence to the block's last
    data       what the runner's `read_block` gave
    checksum   of `data`, taken when it was stored
    """

    digest: bytes
    root: bytes
    beginning: bytes
    data: bytes = field(repr=False)
    checksum: int

    @property
    def num_bytes(self) -> int:
        """Return what it takes of a budget."""
        return len(self.beginning) + len(self.data)

    def answers(self, wanted: Wanted) -> bool:
        """Whether this is the block that is looked for."""
        return (
            self.root == wanted.root
            and len(self.beginning) == wanted.num_bytes
            and wanted.tokens.startswith(self.beginning)
        )

    @property
    def is_intact(self) -> bool:
        """Whether the data is what was stored."""
        return zlib.crc32(self.data) == self.checksum


def store(digest: bytes, root: bytes, beginning: bytes, data: bytes) -> StoredBlock:
    """Return a block with the checksum of its data."""
    return StoredBlock(digest, root, beginning, data, zlib.crc32(data))


def encode(block: StoredBlock, identity: bytes) -> bytes:
    """Return a file's content. `identity` names what the bytes come of besides the tokens: model, formats, block size."""
    root = identity + b"\n" + block.root
    lengths = _LENGTHS.pack(len(root), len(block.beginning), len(block.data), block.checksum)
    named = b"".join((lengths, root, block.beginning))
    return b"".join((_HEADER.pack(MAGIC, zlib.crc32(named)), named, block.data))


def decode(content: bytes, digest: bytes, identity: bytes) -> StoredBlock:
    """Return the block of a file; raises BadBlock for any that `encode` did not make with this `identity`."""
    if len(content) < _ROOT_AT:
        raise BadBlock("it is too short")
    magic, checksum = _HEADER.unpack_from(content)
    root_size, beginning_size, data_size, data_checksum = _LENGTHS.unpack_from(content, _HEADER.size)
    if magic != MAGIC:
        raise BadBlock("it is not a stored block")
    beginning_at = _ROOT_AT + root_size
    data_at = beginning_at + beginning_size
    if len(content) != data_at + data_size:
        raise BadBlock("it is not as long as it says")
    data = content[data_at:]
    if zlib.crc32(content[_HEADER.size : data_at]) != checksum or zlib.crc32(data) != data_checksum:
        raise BadBlock("its checksum is wrong")
    root = content[_ROOT_AT:beginning_at]
    if not root.startswith(identity + b"\n"):
        raise BadBlock("it is another model's")
    beginning = content[beginning_at:data_at]
    return StoredBlock(digest, root[len(identity) + 1 :], beginning, data, data_checksum)
