"""Random weights as the blocks in which GGUF files store them, drawn as bytes: nothing is quantised.

Block layouts: ggml's Q8_0 (scale, 32 signed bytes), Q4_0 (scale, 32 nibbles minus 8), Q4_1 (scale, minimum, 32 nibbles).
Scales are such that weights have a standard deviation of about 0.02, as trained models have: activations stay finite.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STD = 0.02
SPREAD = 0.25
"""Scales lie within 1 ± SPREAD of what STD asks for, so that no two blocks are alike."""

UNIFORM_BYTE_STD = 73.3  # of the integers -127 .. 127
UNIFORM_NIBBLE_STD = 4.61  # of the integers 0 .. 15

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockType:
    """A storage type: its number in GGUF tensor headers, its number as `general.file_type`, weights and bytes a block."""

    name: str
    tensor_type: int
    file_type: int
    num_weights: int
    num_bytes: int


TYPES = {
    block.name: block
    for block in (
        BlockType("q8_0", tensor_type=8, file_type=7, num_weights=32, num_bytes=34),
        BlockType("q4_0", tensor_type=2, file_type=2, num_weights=32, num_bytes=18),
        BlockType("q4_1", tensor_type=3, file_type=3, num_weights=32, num_bytes=20),
        BlockType("bf16", tensor_type=30, file_type=32, num_weights=1, num_bytes=2),
    )
}


def random_blocks(block: BlockType, num_blocks: int, rng: np.random.Generator) -> Bytes:
    """Return `(num_blocks, num_bytes)` bytes."""
    if block.name == "bf16":
        return _random_bf16(num_blocks, rng)
    blocks = np.frombuffer(rng.bytes(num_blocks * block.num_bytes), np.uint8)
    blocks = blocks.reshape(num_blocks, block.num_bytes).copy()
    spread = rng.uniform(1 - SPREAD, 1 + SPREAD, num_blocks)
    match block.name:
        case "q8_0":
            _set_half(blocks, 0, STD / UNIFORM_BYTE_STD * spread)
            weights = blocks[:, 2:].view(np.int8)
            np.maximum(weights, -127, out=weights)  # no quantiser writes -128
        case "q4_0":
            _set_half(blocks, 0, STD / UNIFORM_NIBBLE_STD * spread)
        case "q4_1":
            _set_half(blocks, 0, STD / UNIFORM_NIBBLE_STD * spread)
            _set_half(blocks, 2, -7.5 * STD / UNIFORM_NIBBLE_STD * spread)
    return blocks


def _set_half(blocks: Bytes, offset: int, values: NDArray[np.float64]) -> None:
    blocks[:, offset : offset + 2] = values.astype("<f2")[:, None].view(np.uint8)


def _random_bf16(num: int, rng: np.random.Generator) -> Bytes:
    """Pick from 65,536 normal numbers: as good as drawing each, and ten times as fast."""
    normal = rng.normal(0, STD, 1 << 16).astype("<f4")
    upper = (normal.view("<u4") >> 16).astype("<u2")
    picked = upper[rng.integers(0, 1 << 16, num, dtype=np.uint16)]
    return picked[:, None].view(np.uint8)
