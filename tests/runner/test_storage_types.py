import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from headway.core.plan import TensorType
from headway.models.gguf_file import BLOCK_LAYOUT
from support.ggml_blocks import decode, encode

REFERENCES = np.load(Path(__file__).parents[1] / "data" / "storage_types" / "blocks.npz")
"""Made by scripts/make_storage_type_references.py with the `gguf` package."""
REFERENCED = sorted(name.removesuffix(".blocks") for name in REFERENCES if name.endswith(".blocks"))

F32Array = npt.NDArray[np.float32]


def bits(values: F32Array) -> npt.NDArray[np.uint32]:
    """Return the bits of `values`, every NaN the same: which NaN a product yields differs between processors."""
    return np.where(np.isnan(values), np.float32(math.nan), values).view(np.uint32)


def test_every_type_but_float32_has_references() -> None:
    assert sorted(kind.name for kind in TensorType if kind is not TensorType.F32) == REFERENCED


@pytest.mark.parametrize("name", REFERENCED)
def test_blocks_are_laid_out_as_declared(name: str) -> None:
    blocks, values = REFERENCES[f"{name}.blocks"], REFERENCES[f"{name}.values"]
    assert BLOCK_LAYOUT[TensorType[name]] == (values.shape[1], blocks.shape[1])


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
@pytest.mark.parametrize("name", REFERENCED)
def test_the_decoder_of_the_tests_agrees_with_the_references(name: str) -> None:
    blocks, values = REFERENCES[f"{name}.blocks"], REFERENCES[f"{name}.values"]
    decoded = decode(blocks.tobytes(), TensorType[name], values.shape)
    np.testing.assert_array_equal(bits(decoded), bits(values))


@pytest.mark.native
@pytest.mark.parametrize("name", REFERENCED)
def test_the_core_agrees_with_the_references_bit_for_bit(name: str) -> None:
    from headway import _native

    blocks, values = REFERENCES[f"{name}.blocks"], REFERENCES[f"{name}.values"]
    raw = _native.dequantize(tensor_type=TensorType[name], columns=values.size, data=blocks.tobytes())
    np.testing.assert_array_equal(bits(np.frombuffer(raw, np.float32)), bits(values.ravel()))


@pytest.mark.native
def test_a_row_that_fills_no_blocks_is_refused_by_the_core() -> None:
    from headway import _native

    for kind, columns, num_bytes in [(TensorType.Q4_K, 128, 72), (TensorType.IQ4_NL, 31, 18)]:
        with pytest.raises(ValueError, match="does not fill blocks"):
            _native.dequantize(tensor_type=kind, columns=columns, data=bytes(num_bytes))
    for columns in (-32, 0, 64):
        with pytest.raises(ValueError, match="that many columns"):
            _native.dequantize(tensor_type=TensorType.Q5_0, columns=columns, data=bytes(22))
    with pytest.raises(ValueError, match="Tensor type 9 is not supported"):
        _native.dequantize(tensor_type=9, columns=32, data=bytes(36))


@pytest.mark.parametrize(
    ("kind", "error"),  # largest error over the largest magnitude of the block
    [
        (TensorType.Q8_0, 0.005),
        (TensorType.Q6_K, 0.03),
        (TensorType.Q5_0, 0.07),
        (TensorType.Q5_1, 0.04),
        (TensorType.Q5_K, 0.04),
        (TensorType.Q4_0, 0.13),
        (TensorType.Q4_1, 0.07),
        (TensorType.Q4_K, 0.08),
        (TensorType.IQ4_NL, 0.13),
    ],
)
def test_the_encoder_of_the_tests_keeps_to_the_steps_of_its_type(kind: TensorType, error: float) -> None:
    values = np.random.default_rng(3).standard_normal((4, 512)).astype(np.float32)
    values[0, :256] = 0
    decoded = decode(encode(values, kind), kind, values.shape)
    assert np.abs(decoded - values).max() <= error * np.abs(values).max()
    np.testing.assert_array_equal(decoded[0, :256], 0)
