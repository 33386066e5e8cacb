"""The bits themselves: what the system fingerprint promises to name must not change without its version.

Who changes a bit of any result on purpose raises `kNumericsVersion` (native/src/kernels/kernels.h) and writes the digests
that this test prints in place of the old ones.
"""

from collections.abc import Sequence
from hashlib import sha256

import pytest

from headway import _native
from headway.core.plan import ModelShape, TensorType
from support.tiny_llama import Part, make_model, make_runner, make_step
from support.tiny_shapes import OTHER_SHAPES, random_tensors, tiny_shape

pytestmark = pytest.mark.native

SHAPES: dict[str, ModelShape] = {"llama": tiny_shape(), **OTHER_SHAPES}
MIXED = tiny_shape(hidden_size=96, ffn_size=160)
"""Its columns fill the blocks of `MIXED_TYPES`."""
MIXED_TYPES = (TensorType.Q8_0, TensorType.Q4_0, TensorType.Q4_1, TensorType.IQ4_NL)
NUM_TOKENS = 300  # two spans of attention
NUMERICS_VERSION = 2
DIGESTS = {
    ("portable", "bf16", "llama"): "aaa1d13fe71610b8",
    ("portable", "int8", "llama"): "75b8e30a38470345",
    ("portable", "bf16", "capped"): "b98f4e09a03179fc",
    ("portable", "int8", "capped"): "bcfc2ba0bf547edc",
    ("portable", "bf16", "experts"): "203fde57f266a2c3",
    ("portable", "int8", "experts"): "48ad1d0fbd2c7348",
    ("portable", "bf16", "biased"): "5fb721c84dbaef93",
    ("portable", "int8", "biased"): "628d9e5094fffe8f",
    ("avx2", "bf16", "llama"): "fc5c85dc24515bf6",
    ("avx2", "int8", "llama"): "7f02961c3f9bd323",
    ("avx2", "bf16", "capped"): "492c7830fb1d6880",
    ("avx2", "int8", "capped"): "e3ae2a7209a8c69d",
    ("avx2", "bf16", "experts"): "bf20e6413ca1787a",
    ("avx2", "int8", "experts"): "188499e82dd1676d",
    ("avx2", "bf16", "biased"): "84108fc2bd3d8738",
    ("avx2", "int8", "biased"): "53ae03131e7a56f1",
    ("avx512", "bf16", "llama"): "d8cb3a3f69b45dcf",
    ("avx512", "int8", "llama"): "d8de24174546f480",
    ("avx512", "bf16", "capped"): "35b4c818b6119dfc",
    ("avx512", "int8", "capped"): "332006b0df8e1b97",
    ("avx512", "bf16", "experts"): "e2f7f38ec47572a7",
    ("avx512", "int8", "experts"): "346f916c65e0ee2f",
    ("avx512", "bf16", "biased"): "9aca5475027fe52a",
    ("avx512", "int8", "biased"): "f94da364a46aeeca",
    ("avx512bf16", "bf16", "llama"): "7abd629fdb3326be",
    ("avx512bf16", "int8", "llama"): "d8de24174546f480",
    ("avx512bf16", "bf16", "capped"): "36be143e29b71cf3",
    ("avx512bf16", "int8", "capped"): "332006b0df8e1b97",
    ("avx512bf16", "bf16", "experts"): "a3e2b9f56ebe3e1e",
    ("avx512bf16", "int8", "experts"): "346f916c65e0ee2f",
    ("avx512bf16", "bf16", "biased"): "01ce217e32808aff",
    ("avx512bf16", "int8", "biased"): "f94da364a46aeeca",
    ("portable", "int8", "group 128"): "58bc0c0f267ace33",
    ("portable", "int4", "llama"): "c72be3c3f7e16dfb",
    ("portable", "nf4", "llama"): "3119807adc8d429d",
    ("portable", "auto", "mixed"): "91f1e8ee9718858b",
    ("avx2", "int8", "group 128"): "913eb1600ea1d80e",
    ("avx2", "int4", "llama"): "702dc501ffb560c9",
    ("avx2", "nf4", "llama"): "40db00c0eb8a4b6f",
    ("avx2", "auto", "mixed"): "ca43d6bfaf51786d",
    ("avx512", "int8", "group 128"): "06599cc39d056f0c",
    ("avx512", "int4", "llama"): "c66689aa7291ec7b",
    ("avx512", "nf4", "llama"): "55eb6964be7f11f3",
    ("avx512", "auto", "mixed"): "08306c91b3f7b0d2",
    ("avx512bf16", "int8", "group 128"): "06599cc39d056f0c",
    ("avx512bf16", "int4", "llama"): "328009876de69717",
    ("avx512bf16", "nf4", "llama"): "c5460fd239a27f47",
    ("avx512bf16", "auto", "mixed"): "099792c0ccdafa21",
    ("avx512bf16", "bf16", "bf16 activations"): "ca2d9cfac0b50589",
}


def digest(
    shape: ModelShape,
    weights: str,
    isa: str,
    *,
    group_size: int = 32,
    activations: str = "f32",
    types: Sequence[TensorType] = (TensorType.F32,),
) -> str:
    """Logits of every 37th position, in bits. int8 weights go with an int8 cache, all others with bf16."""
    model = make_model(
        shape,
        random_tensors(shape),
        weights=weights,
        isa=isa,
        group_size=group_size,
        activations=activations,
        types=types,
    )
    runner = make_runner(model, shape, kv="int8" if weights == "int8" else "bf16")
    tokens = [(i * i * 7 + i * 31) % shape.vocab_size for i in range(NUM_TOKENS)]
    part = Part(tokens, 0, range(19), range(0, NUM_TOKENS, 37))
    return sha256(runner.forward(make_step([part]))).hexdigest()[:16]


@pytest.mark.parametrize("isa", _native.available_isas())
def test_the_bits_are_those_of_the_version(isa: str) -> None:
    assert _native.NUMERICS_VERSION == NUMERICS_VERSION
    found = {
        (isa, weights, name): digest(shape, weights, isa)
        for name, shape in SHAPES.items()
        for weights in ("bf16", "int8")
    }
    llama = SHAPES["llama"]
    found[isa, "int8", "group 128"] = digest(llama, "int8", isa, group_size=128)
    found[isa, "int4", "llama"] = digest(llama, "int4", isa)
    found[isa, "nf4", "llama"] = digest(llama, "nf4", isa)
    found[isa, "auto", "mixed"] = digest(MIXED, "auto", isa, types=MIXED_TYPES)
    if isa == "avx512bf16":
        found[isa, "bf16", "bf16 activations"] = digest(llama, "bf16", isa, activations="bf16")
    assert found == {key: value for key, value in DIGESTS.items() if key[0] == isa}
