"""A model of any shape without its file: random weights, made in memory, packed as a file's are.

One slice of random blocks serves for all matrices, so that a model of billions of weights takes no longer than packing it
does. What it computes is noise, at the speed of the real model: no kernel's time depends on the values.
"""

import random
from array import array
from collections.abc import Iterator
from pathlib import Path

from headway import _native
from headway.core.config import EngineConfig
from headway.core.errors import ModelFileError
from headway.core.plan import ModelPlan, ModelShape, Role, TensorRef, TensorType
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from headway.runner.packing import SLICE_BYTES, load_rows, slice_rows

_BLOCKS: dict[TensorType, tuple[int, int]] = {  # (values, bytes) of a block
    TensorType.F32: (1, 4),
    TensorType.BF16: (1, 2),
    TensorType.Q8_0: (32, 34),
    TensorType.Q4_0: (32, 18),
}
_STORED = {"bf16": TensorType.BF16, "int4": TensorType.Q4_0, "nf4": TensorType.Q4_0}
"""As what weights of a runtime format are stored; any other as Q8_0."""


def random_runner(name: str, shape: ModelShape, config: EngineConfig) -> NativeRunner:
    """Return a runner of random weights with an empty KV cache, as `load_runner` does of a file's; raises what that
    raises, and ConfigError before anything is written if it does not fit."""
    return load_runner(random_plan(name, shape, config.weights), config, pack=pack_random)


def random_plan(name: str, shape: ModelShape, weights: str) -> ModelPlan:
    """Return a plan of the shape's tensors, which lie nowhere: `pack_random` makes them."""
    stored = _STORED.get(weights, TensorType.Q8_0)
    tensors = tuple(
        TensorRef(
            role=role,
            layer=layer,
            expert=expert,
            type=TensorType.F32 if rows == 1 else stored,
            rows=rows,
            columns=columns,
            offset=0,
            num_bytes=rows * _row_bytes(TensorType.F32 if rows == 1 else stored, columns),
        )
        for layer, expert, role, rows, columns in _sizes(shape)
    )
    return ModelPlan(path=Path(name), files=(), file_sha256=None, shape=shape, tensors=tensors)


def pack_random(model: _native.Model, plan: ModelPlan) -> str:
    """Load every tensor of a plan with random values and finish the model; return what tells them from others'.

    Norms are ones, biases zeros, matrices about +-0.02.
    """
    slices: dict[TensorType, bytes] = {}
    try:
        for tensor in plan.tensors:
            if tensor.rows == 1:
                value = 0.0 if tensor.role.endswith("_bias") else 1.0
                load_rows(model, tensor, 0, 1, memoryview(array("f", [value] * tensor.columns)).cast("B"))
                continue
            row_bytes = tensor.num_bytes // tensor.rows
            step = slice_rows(row_bytes)
            num_bytes = max(SLICE_BYTES, step * row_bytes)
            data = slices.get(tensor.type)
            if data is None or len(data) < num_bytes:
                data = slices[tensor.type] = _random_blocks(tensor.type, num_bytes)
            for first_row in range(0, tensor.rows, step):
                rows = min(step, tensor.rows - first_row)
                load_rows(model, tensor, first_row, rows, memoryview(data)[: rows * row_bytes])
        model.finish()
    except ValueError as error:
        raise ModelFileError(f"{plan.path.name}: {error}") from error
    return f"random weights of {plan.shape}"


def _row_bytes(stored: TensorType, columns: int) -> int:
    num_values, num_bytes = _BLOCKS[stored]
    if columns % num_values:
        raise ModelFileError(f"Rows of {columns} columns cannot be stored as {stored.name}.")
    return columns // num_values * num_bytes


def _random_blocks(stored: TensorType, num_bytes: int) -> bytes:
    """Return blocks of random values with a standard deviation of about 0.02, at least `num_bytes` of them."""
    block_bytes = _BLOCKS[stored][1]
    count = -(-num_bytes // block_bytes)
    data = bytearray(random.Random(0).randbytes(count * block_bytes))
    if stored is TensorType.BF16:  # exponents that lie between 2^-7 and 2^-5
        data[1::2] = data[1::2].translate(bytes(0x3C | (byte & 0x80) for byte in range(256)))
    else:  # the scale: 0.02 divided by the deviation of the block's uniform integers, as a half
        low, high = {TensorType.Q8_0: (0x6F, 0x0C), TensorType.Q4_0: (0x71, 0x1C)}[stored]
        data[0::block_bytes] = bytes([low]) * count
        data[1::block_bytes] = bytes([high]) * count
    return bytes(data)


def _sizes(shape: ModelShape) -> Iterator[tuple[int | None, int | None, Role, int, int]]:
    """Yield (layer, expert, role, rows, columns) of every tensor; vectors have one row."""
    hidden, heads = shape.hidden_size, shape.num_heads * shape.head_dim
    kv_heads = shape.num_kv_heads * shape.head_dim
    yield None, None, "token_embedding", shape.vocab_size, hidden
    yield None, None, "output_norm", 1, hidden
    if not shape.tied_embeddings:
        yield None, None, "output", shape.vocab_size, hidden
    for layer in range(shape.num_layers):
        yield layer, None, "attention_norm", 1, hidden
        yield layer, None, "query", heads, hidden
        yield layer, None, "key", kv_heads, hidden
        yield layer, None, "value", kv_heads, hidden
        yield layer, None, "attention_output", hidden, heads
        yield layer, None, "ffn_norm", 1, hidden
        if shape.qkv_bias:
            yield layer, None, "query_bias", 1, heads
            yield layer, None, "key_bias", 1, kv_heads
            yield layer, None, "value_bias", 1, kv_heads
        if shape.qk_norm:
            yield layer, None, "query_norm", 1, shape.head_dim
            yield layer, None, "key_norm", 1, shape.head_dim
        if shape.post_norms:
            yield layer, None, "attention_post_norm", 1, hidden
            yield layer, None, "ffn_post_norm", 1, hidden
        if shape.num_experts:
            yield layer, None, "router", shape.num_experts, hidden
        for expert in range(shape.num_experts) if shape.num_experts else (None,):
            yield layer, expert, "ffn_gate", shape.ffn_size, hidden
            yield layer, expert, "ffn_up", shape.ffn_size, hidden
            yield layer, expert, "ffn_down", hidden, shape.ffn_size
