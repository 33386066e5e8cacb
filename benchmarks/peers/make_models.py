"""Makes the models that all sides read: GGUF files of a llama's shape with random weights, the same bytes for a seed.

Speed depends on shape and format, not on what the weights say. The tokenizer, which peers insist on, is copied from
SmolLM2's file when the model is made. Digests are kept beside the files.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from peers.blocks import TYPES, BlockType, random_blocks
from peers.gguf_header import encode_header, encode_pair, padding, tokenizer_pairs

RECIPE = 1
"""Raised when the same name and seed would give other bytes."""

BLOCKS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a model of the Llama architecture with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int = 8192
    rope_base: float = 100_000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Dimensions of a head; heads times this is the hidden size."""
        return self.hidden // self.heads


LLAMA_1_4B = LlamaShape(hidden=1536, layers=28, heads=12, kv_heads=2, ffn=8960, vocab=49_152)


def matrices(shape: LlamaShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and dims (contiguous first) of every tensor; those with one dimension are norms."""
    hidden, kv = shape.hidden, shape.kv_heads * shape.head_dim
    yield "token_embd.weight", (hidden, shape.vocab)
    for layer in range(shape.layers):
        for name, dims in (
            ("attn_norm", (hidden,)),
            ("attn_q", (hidden, hidden)),
            ("attn_k", (hidden, kv)),
            ("attn_v", (hidden, kv)),
            ("attn_output", (hidden, hidden)),
            ("ffn_norm", (hidden,)),
            ("ffn_gate", (hidden, shape.ffn)),
            ("ffn_up", (hidden, shape.ffn)),
            ("ffn_down", (shape.ffn, hidden)),
        ):
            yield f"blk.{layer}.{name}.weight", dims
    yield "output_norm.weight", (hidden,)


def metadata(shape: LlamaShape, block: BlockType, tokenizer: list[bytes]) -> list[bytes]:
    """Return the metadata pairs, the tokenizer's last."""
    values: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "general.name": "random weights",
        "general.file_type": block.file_type,
        "general.quantization_version": 2,
        "general.alignment": 32,
        "llama.block_count": shape.layers,
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": shape.eps,
        "llama.rope.freq_base": shape.rope_base,
        "llama.rope.dimension_count": shape.head_dim,
        "llama.vocab_size": shape.vocab,
    }
    return [encode_pair(key, value) for key, value in values.items()] + tokenizer


def write_model(path: Path, shape: LlamaShape, type_name: str, tokenizer: list[bytes], seed: int) -> str:
    """Write a model, whole or not at all; return its SHA-256."""
    block, digest, part = TYPES[type_name], hashlib.sha256(), path.with_suffix(".part")
    tensors = [(name, dims, *_stored(dims, block)) for name, dims in matrices(shape)]
    with part.open("wb") as file:

        def put(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        put(encode_header(metadata(shape, block, tokenizer), tensors))
        for index, (_, dims, _, num_bytes) in enumerate(tensors):
            for data in _weights(dims, block, np.random.default_rng([seed, index])):
                put(data)
            put(bytes(padding(num_bytes)))
    part.rename(path)
    return digest.hexdigest()


def ensure_model(folder: Path, type_name: str, tokenizer_of: Path, seed: int = 1) -> tuple[Path, str]:
    """Return path and digest of the 1.4 B model in `type_name`, making it if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"llama-1.4b-{type_name}.gguf"
    record = path.with_suffix(".json")
    made_of = {"recipe": RECIPE, "seed": seed, "type": type_name, "shape": asdict(LLAMA_1_4B)}
    known = json.loads(record.read_text()) if record.is_file() and path.is_file() else {}
    if known.get("made_of") != made_of or known["bytes"] != path.stat().st_size:
        print(f"making {path.name}", file=sys.stderr)
        sha256 = write_model(path, LLAMA_1_4B, type_name, tokenizer_pairs(tokenizer_of), seed)
        known = {"made_of": made_of, "bytes": path.stat().st_size, "sha256": sha256}
        record.write_text(json.dumps(known, indent=2) + "\n")
    return path, known["sha256"]


def _stored(dims: tuple[int, ...], block: BlockType) -> tuple[int, int]:
    """Return type and size in bytes of a tensor: norms are F32, matrices blocks."""
    if len(dims) == 1:
        return 0, 4 * dims[0]
    return block.tensor_type, dims[0] * dims[1] // block.num_weights * block.num_bytes


def _weights(dims: tuple[int, ...], block: BlockType, rng: np.random.Generator) -> Iterator[memoryview]:
    if len(dims) == 1:
        yield np.ones(dims[0], "<f4").data.cast("B")
        return
    left = dims[0] * dims[1] // block.num_weights
    while left > 0:
        num = min(left, BLOCKS_AT_ONCE)
        yield np.ascontiguousarray(random_blocks(block, num, rng)).data.cast("B")
        left -= num
