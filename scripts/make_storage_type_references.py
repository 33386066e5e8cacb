"""Write tests/data/storage_types/blocks.npz: random blocks of each storage type and the floats that they stand for.

Needs the `gguf` package (its `quants.dequantize` is the reference) and numpy:

    python scripts/make_storage_type_references.py

For each type `T` the archive holds `T.blocks` (num_blocks, bytes of a block), uint8, and `T.values` (num_blocks, values of a
block), float32. The bytes are random, so scales of every size occur; the first blocks have their halves replaced by the
extremes: zero, minus zero, the smallest subnormal, the largest finite, infinity and NaN.
"""

from pathlib import Path

import numpy as np
from gguf import (  # type: ignore[import-not-found]  # in no environment that runs mypy
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
)
from gguf.quants import dequantize  # type: ignore[import-not-found]

TARGET = Path(__file__).parents[1] / "tests" / "data" / "storage_types" / "blocks.npz"
SEED = 20

# type -> number of blocks, and where the halves lie that scale a block
TYPES = {
    "F16": (512, (0,)),
    "BF16": (512, ()),
    "Q4_0": (24, (0,)),
    "Q4_1": (24, (0, 2)),
    "Q5_0": (24, (0,)),
    "Q5_1": (24, (0, 2)),
    "Q8_0": (24, (0,)),
    "IQ4_NL": (24, (0,)),
    "Q4_K": (8, (0, 2)),
    "Q5_K": (8, (0, 2)),
    "Q6_K": (8, (208,)),
}
EXTREMES = np.array([0x0000, 0x8000, 0x0001, 0x7BFF, 0x7C00, 0x7E00], "<u2")


def main() -> None:
    generator = np.random.default_rng(SEED)
    arrays: dict[str, np.ndarray] = {}
    for name, (num_blocks, places) in TYPES.items():
        kind = GGMLQuantizationType[name]
        num_values, num_bytes = GGML_QUANT_SIZES[kind]
        blocks = generator.integers(0, 256, (num_blocks, num_bytes), dtype=np.uint8)
        for turn, place in enumerate(places):
            extremes = np.roll(EXTREMES, turn)
            blocks[: len(extremes), place : place + 2] = extremes[:, None].view(np.uint8)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.ascontiguousarray(dequantize(blocks, kind)).reshape(num_blocks, num_values)
        arrays[f"{name}.blocks"] = blocks
        arrays[f"{name}.values"] = values.astype(np.float32)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(TARGET, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
