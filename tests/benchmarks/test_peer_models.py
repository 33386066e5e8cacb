"""The models that peers are compared on: Headway's own reader takes them, and their weights are what they should be."""

import struct
from pathlib import Path

import numpy as np
import pytest

from headway.core.plan import TensorType
from headway.models.architectures import open_plan
from peers.blocks import STD, TYPES, random_blocks
from peers.gguf_header import encode_header, encode_pair, tokenizer_pairs
from peers.make_models import LLAMA_1_4B, LlamaShape, matrices, write_model
from support.ggml_blocks import decode
from support.gguf_writer import MetadataInput, encode_gguf
from support.tiny_gguf import write_tiny_gguf

TINY = LlamaShape(hidden=64, layers=2, heads=4, kv_heads=2, ffn=96, vocab=320, context=256)


@pytest.fixture
def tokenizer(tmp_path: Path) -> list[bytes]:
    return tokenizer_pairs(write_tiny_gguf(tmp_path / "has-a-tokenizer.gguf").path)


@pytest.mark.parametrize("type_name", TYPES)
def test_headway_reads_a_made_model(tmp_path: Path, tokenizer: list[bytes], type_name: str) -> None:
    path = tmp_path / "made.gguf"
    write_model(path, TINY, type_name, tokenizer, seed=1)
    shape = open_plan(path).shape
    assert (shape.num_layers, shape.hidden_size, shape.num_heads, shape.num_kv_heads) == (2, 64, 4, 2)
    assert (shape.head_dim, shape.ffn_size, shape.vocab_size, shape.max_context) == (16, 96, 320, 256)


def test_the_tokenizer_is_copied_whole(tmp_path: Path, tokenizer: list[bytes]) -> None:
    path = tmp_path / "made.gguf"
    write_model(path, TINY, "q8_0", tokenizer, seed=1)
    assert tokenizer_pairs(path) == tokenizer


def test_every_kind_of_metadata_is_passed_over(tmp_path: Path) -> None:
    pairs: dict[str, MetadataInput] = {
        "a.text": "x",
        "a.flag": True,
        "a.numbers": [1, 2, 3],
        "a.words": ["ab", "c"],
        "a.wide": struct.pack("<Iq", 11, -1),
        "tokenizer.last": 7,
    }
    path = tmp_path / "some.gguf"
    path.write_bytes(encode_gguf(pairs))
    assert tokenizer_pairs(path) == [encode_pair("tokenizer.last", 7)]


def test_the_same_seed_makes_the_same_file_and_another_does_not(
    tmp_path: Path, tokenizer: list[bytes]
) -> None:
    digests = [
        write_model(tmp_path / f"{number}.gguf", TINY, "q4_0", tokenizer, seed)
        for number, seed in enumerate((1, 1, 2))
    ]
    assert digests[0] == digests[1] != digests[2]
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("type_name", TYPES)
def test_weights_are_spread_as_in_a_trained_model(type_name: str) -> None:
    block = TYPES[type_name]
    num_blocks = 65_536 // block.num_weights
    data = random_blocks(block, num_blocks, np.random.default_rng(1)).tobytes()
    weights = decode(data, TensorType(block.tensor_type), (num_blocks, block.num_weights))
    assert np.isfinite(weights).all()
    assert weights.std() == pytest.approx(STD, rel=0.05)
    assert abs(weights.mean()) < STD / 5


def test_q8_0_has_no_byte_that_no_quantiser_writes() -> None:
    blocks = random_blocks(TYPES["q8_0"], 4096, np.random.default_rng(1))
    assert blocks[:, 2:].view(np.int8).min() == -127


def test_headers_are_those_of_another_writer() -> None:
    ours = encode_header([encode_pair("a", "text"), encode_pair("b", 3), encode_pair("c", 0.5)], [])
    assert ours == encode_gguf({"a": "text", "b": 3, "c": 0.5})


def test_the_large_shape_has_1_39_billion_weights() -> None:
    num = sum(int(np.prod(dims)) for _, dims in matrices(LLAMA_1_4B))
    assert num == pytest.approx(1.39e9, rel=0.005)
