"""Shapes of tiny decoders, one for each mixture of what architectures ask for, and random weights for them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core.plan import LayerShape, ModelShape, Rope

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def tiny_rope(
    dim: int = 32, *, interleaved: bool = True, theta: float = 10_000.0, scale: float = 1.0
) -> Rope:
    """The plain rotation of `dim` dimensions."""
    frequencies = np.float64(theta) ** (-np.arange(0, dim, 2) / dim)
    return Rope(
        dim=dim,
        interleaved=interleaved,
        frequencies=tuple(float(value) for value in frequencies.astype(np.float32)),
        scale=scale,
    )


def tiny_shape(**changes: Any) -> ModelShape:
    """Sizes on purpose uneven: hidden, vocabulary and FFN fill neither tiles nor groups. `changes` are fields."""
    head_dim, num_layers = changes.get("head_dim", 32), changes.get("num_layers", 2)
    fields: dict[str, Any] = {
        "architecture": "tiny",
        "vocab_size": 131,
        "max_context": 640,
        "hidden_size": 72,
        "num_layers": num_layers,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": head_dim,
        "ffn_size": 104,
        "norm_epsilon": 1e-5,
        "tied_embeddings": True,
        "ropes": (tiny_rope(head_dim),),
        "layers": (LayerShape(),) * num_layers,
    }
    return ModelShape(**(fields | changes))


CAPPED = tiny_shape(
    num_layers=3,
    ropes=(tiny_rope(interleaved=False), tiny_rope(24, interleaved=False, theta=500.0, scale=1.3)),
    layers=(LayerShape(), LayerShape(rope=1, window=270), LayerShape(rope=1, window=17)),
    activation="gelu_tanh",
    attention_scale=0.25,
    attention_softcap=3.0,
    logit_softcap=6.0,
    embedding_scale=2.5,
    qk_norm=True,
    post_norms=True,
)
"""What Gemma's line asks for."""

EXPERTS = tiny_shape(num_experts=37, num_experts_per_token=5, ffn_size=40, qk_norm=True)
"""Qwen3-MoE's, with more experts than a tile of the router holds."""

BIASED = tiny_shape(
    qkv_bias=True,
    layers=(LayerShape(window=40), LayerShape(window=3)),
    num_experts=3,
    num_experts_per_token=2,
    normalize_experts=False,
    post_norms=True,
)
"""Qwen2's biases, windows shorter than a tile of attention, and what else the others leave out."""

OTHER_SHAPES = {"capped": CAPPED, "experts": EXPERTS, "biased": BIASED}

Tensors = Mapping[tuple[str, int | None], F32]


def random_tensors(shape: ModelShape, *, seed: int = 1) -> Tensors:
    """Random weights by (role, layer); matrices are (rows, columns), those of experts (num_experts, rows, columns)."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> F32:
        values: F64 = rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)
        return values.astype(np.float32)

    def norm(size: int = shape.hidden_size) -> F32:
        return (1.0 + 0.1 * rng.standard_normal((1, size))).astype(np.float32)

    def feed_forward(rows: int, columns: int) -> F32:
        if shape.num_experts == 0:
            return matrix(rows, columns)
        return np.stack([matrix(rows, columns) for _ in range(shape.num_experts)])

    hidden, heads, kv = (
        shape.hidden_size,
        shape.num_heads * shape.head_dim,
        shape.num_kv_heads * shape.head_dim,
    )
    tensors: dict[tuple[str, int | None], F32] = {
        ("token_embedding", None): matrix(shape.vocab_size, hidden, 4.0),
        ("output_norm", None): norm(),
    }
    if not shape.tied_embeddings:
        tensors["output", None] = matrix(shape.vocab_size, hidden, 4.0)
    for layer in range(shape.num_layers):
        tensors["attention_norm", layer] = norm()
        tensors["query", layer] = matrix(heads, hidden, 2.0)
        tensors["key", layer] = matrix(kv, hidden, 2.0)
        tensors["value", layer] = matrix(kv, hidden)
        tensors["attention_output", layer] = matrix(hidden, heads)
        tensors["ffn_norm", layer] = norm()
        tensors["ffn_gate", layer] = feed_forward(shape.ffn_size, hidden)
        tensors["ffn_up", layer] = feed_forward(shape.ffn_size, hidden)
        tensors["ffn_down", layer] = feed_forward(hidden, shape.ffn_size)
        if shape.num_experts:
            tensors["router", layer] = matrix(shape.num_experts, hidden, 2.0)
        if shape.qkv_bias:
            for role, size in (("query_bias", heads), ("key_bias", kv), ("value_bias", kv)):
                tensors[role, layer] = matrix(1, size, np.sqrt(size) / 2)
        if shape.qk_norm:
            tensors["query_norm", layer] = norm(shape.head_dim)
            tensors["key_norm", layer] = norm(shape.head_dim)
        if shape.post_norms:
            tensors["attention_post_norm", layer] = norm()
            tensors["ffn_post_norm", layer] = norm()
    return tensors
