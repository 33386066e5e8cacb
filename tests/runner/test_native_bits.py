"""The bits themselves: what the system fingerprint promises to name must not change without its version.

Who changes a bit of any result on purpose raises `kNumericsVersion` (native/src/kernels/kernels.h) and writes the digests
that this test prints in place of the old ones.
"""

from hashlib import sha256

import pytest

from headway import _native
from headway.core.plan import ModelShape
from support.tiny_llama import Part, make_model, make_runner, make_step
from support.tiny_shapes import OTHER_SHAPES, random_tensors, tiny_shape

pytestmark = pytest.mark.native

SHAPES: dict[str, ModelShape] = {"llama": tiny_shape(), **OTHER_SHAPES}
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
    ("avx512bf16", "bf16", "llama"): "ca2d9cfac0b50589",
    ("avx512bf16", "int8", "llama"): "d8de24174546f480",
    ("avx512bf16", "bf16", "capped"): "2f136a22a2b86e17",
    ("avx512bf16", "int8", "capped"): "332006b0df8e1b97",
    ("avx512bf16", "bf16", "experts"): "b4b5cebe6358cfb8",
    ("avx512bf16", "int8", "experts"): "346f916c65e0ee2f",
    ("avx512bf16", "bf16", "biased"): "268727e10a535d1c",
    ("avx512bf16", "int8", "biased"): "f94da364a46aeeca",
}


def digest(shape: ModelShape, weights: str, isa: str) -> str:
    """Logits of every 37th position, in bits. int8 weights go with an int8 cache, bf16 with bf16."""
    model = make_model(shape, random_tensors(shape), weights=weights, isa=isa)
    runner = make_runner(model, shape, kv=weights)
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
    assert found == {key: value for key, value in DIGESTS.items() if key[0] == isa}
