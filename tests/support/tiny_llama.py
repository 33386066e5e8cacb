"""A llama of a few thousand random weights, given to the native core straight from arrays, and the same in numpy."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway import _native
from headway.core.plan import LayerShape, ModelShape, Rope, TensorType
from headway.runner.native import shape_arguments
from headway.runner.native_runner import NativeRunner
from headway.runner.step import OutputKind, RunnerInfo, SamplingBatch, Step

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


def make_model(
    shape: ModelShape, tensors: Tensors, *, weights: str, isa: str, threads: int = 1, group_size: int = 32
) -> _native.Model:
    """Load the tensors as float32 and finish the model."""
    model = empty_model(shape, weights=weights, isa=isa, threads=threads, group_size=group_size)
    for (role, layer), values in tensors.items():
        for expert, part in enumerate(values if values.ndim == 3 else [values]):
            model.load(
                role=role,
                layer=layer,
                expert=expert if values.ndim == 3 else None,
                tensor_type=TensorType.F32,
                rows=part.shape[0],
                columns=part.shape[1],
                data=memoryview(part.tobytes()),
            )
    model.finish()
    return model


def empty_model(
    shape: ModelShape, *, weights: str = "int8", isa: str = "auto", threads: int = 1, group_size: int = 32
) -> _native.Model:
    """Return a model without tensors."""
    return _native.Model(
        **shape_arguments(shape, max_context=shape.max_context),
        weights=weights,
        group_size=group_size,
        isa=isa,
        threads=threads,
    )


def make_runner(
    model: _native.Model, shape: ModelShape, *, kv: str = "bf16", num_blocks: int = 64
) -> NativeRunner:
    """Return a runner with an empty cache of `num_blocks`."""
    cache = _native.KvCache(model, num_blocks=num_blocks, dtype=kv)
    info = RunnerInfo(
        vocab_size=shape.vocab_size,
        max_context=shape.max_context,
        num_blocks=num_blocks,
        block_size=16,
        system_fingerprint="tiny",
    )
    return NativeRunner(cache, info)


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence brings to a step: tokens after `context` cached ones, its blocks, rows read (of its tokens)."""

    tokens: Sequence[int]
    context: int
    blocks: Sequence[int]
    outputs: Sequence[int] = ()


def make_step(
    parts: Sequence[Part], *, kind: OutputKind = OutputKind.LOGITS, sampling: SamplingBatch | None = None
) -> Step:
    """Lay the parts out as flat arrays."""
    starts, table_starts, outputs = array("i", [0]), array("i", [0]), array("i")
    tokens, positions, table = array("i"), array("i"), array("i")
    for part in parts:
        outputs.extend(len(tokens) + row for row in part.outputs)
        tokens.extend(part.tokens)
        positions.extend(range(part.context, part.context + len(part.tokens)))
        table.extend(part.blocks)
        starts.append(len(tokens))
        table_starts.append(len(table))
    return Step(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        context_lens=array("i", [part.context for part in parts]),
        block_table=table,
        block_table_starts=table_starts,
        adapter_ids=array("i", [0] * len(parts)),
        output_rows=outputs,
        output_kinds=array("i", [kind] * len(outputs)),
        sampling=sampling,
    )


def greedy(num_rows: int, *, positions: Sequence[int] | None = None, num_logprobs: int = -1) -> SamplingBatch:
    """Greedy sampling of `num_rows` rows."""
    return SamplingBatch(
        temperature=array("f", [0.0] * num_rows),
        top_k=array("i", [0] * num_rows),
        top_p=array("f", [1.0] * num_rows),
        min_p=array("f", [0.0] * num_rows),
        repetition_penalty=array("f", [1.0] * num_rows),
        presence_penalty=array("f", [0.0] * num_rows),
        frequency_penalty=array("f", [0.0] * num_rows),
        seeds=array("Q", [7] * num_rows),
        choices=array("i", [0] * num_rows),
        positions=array("i", positions if positions is not None else [0] * num_rows),
        num_logprobs=array("i", [num_logprobs] * num_rows),
        history_starts=array("i", [0] * (num_rows + 1)),
        history=array("i"),
        history_prompt_lens=array("i", [0] * num_rows),
        bias_starts=array("i", [0] * (num_rows + 1)),
        bias_ids=array("i"),
        bias_values=array("f"),
        mask_rows=array("i", [-1] * num_rows),
        masks=array("I"),
    )


def drawing(num_rows: int, *, positions: Sequence[int], temperature: float = 1.0) -> SamplingBatch:
    """Sampling at a temperature, seed 7."""
    return replace(greedy(num_rows, positions=positions), temperature=array("f", [temperature] * num_rows))


def round_bf16(values: F32) -> F32:
    """Round to bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def quantize(values: F64, group_size: int, *, bf16_scale: bool = False) -> F64:
    """Round to int8 by groups along the last axis, symmetric; what the runtime's integers stand for."""
    size = values.shape[-1]
    groups = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -size % group_size)])
    groups = groups.reshape(*values.shape[:-1], -1, group_size)
    scale = (np.abs(groups).max(axis=-1, keepdims=True) / 127.0).astype(np.float32)
    if bf16_scale:  # upwards, so that the largest weight stays within 127 scales
        scale = ((scale.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    steps = np.rint(np.divide(groups, scale, out=np.zeros_like(groups), where=scale > 0))
    result: F64 = (steps * scale).reshape(*values.shape[:-1], -1)[..., :size]
    return result


def reference_logits(
    shape: ModelShape,
    tensors: Tensors,
    tokens: Sequence[int],
    *,
    weights: str = "f32",
    kv: str = "f32",
    group_size: int = 32,
) -> F64:
    """Logits of every position (num_tokens, vocab_size) in float64, from values rounded as the formats say."""

    def rounded(values: F32) -> F64:
        if weights == "int8":
            return quantize(values.astype(np.float64), group_size, bf16_scale=True)
        return (round_bf16(values) if weights == "bf16" else values).astype(np.float64)

    def times(x: F64, values: F32) -> F64:
        result: F64 = (quantize(x, group_size) if weights == "int8" else x) @ rounded(values).T
        return result

    def product(x: F64, role: str, layer: int | None = None) -> F64:
        result = times(x, tensors[role, layer])
        return result + tensors[f"{role}_bias", layer] if (f"{role}_bias", layer) in tensors else result

    def cached(x: F64) -> F64:
        if kv == "int8":
            return quantize(x, shape.head_dim)
        return round_bf16(x.astype(np.float32)).astype(np.float64) if kv == "bf16" else x

    def norm(x: F64, role: str, layer: int | None = None) -> F64:
        if (role, layer) not in tensors:  # an optional one
            return x
        scale = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + shape.norm_epsilon)
        result: F64 = x * scale * tensors[role, layer].astype(np.float64)
        return result

    def softened(x: F64, cap: float | None) -> F64:
        return x if cap is None else cap * np.tanh(x / cap)

    def feed_forward(x: F64, gate: F32, up: F32, down: F32) -> F64:
        g = times(x, gate)
        if shape.activation == "silu":
            active = g / (1.0 + np.exp(-g))
        else:
            active = 0.5 * g * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (g + 0.044715 * g**3)))
        return times(active * times(x, up), down)

    def experts(x: F64, layer: int) -> F64:
        scores = np.exp(x @ tensors["router", layer].T.astype(np.float64))
        scores /= scores.sum(axis=1, keepdims=True)
        chosen = np.argsort(-scores, axis=1, kind="stable")[:, : shape.num_experts_per_token]
        picked = np.zeros_like(scores)
        np.put_along_axis(picked, chosen, np.take_along_axis(scores, chosen, axis=1), axis=1)
        if shape.normalize_experts:
            picked /= picked.sum(axis=1, keepdims=True)
        parts = [tensors[role, layer] for role in ("ffn_gate", "ffn_up", "ffn_down")]
        outputs = [feed_forward(x, *(part[index] for part in parts)) for index in range(shape.num_experts)]
        result: F64 = np.einsum("te,etd->td", picked, np.stack(outputs))
        return result

    count, group = len(tokens), shape.num_heads // shape.num_kv_heads
    x = rounded(tensors["token_embedding", None])[np.array(tokens)] * shape.embedding_scale
    for layer, layer_shape in enumerate(shape.layers):
        h = norm(x, "attention_norm", layer)
        q = product(h, "query", layer).reshape(count, shape.num_heads, shape.head_dim)
        k = product(h, "key", layer).reshape(count, shape.num_kv_heads, shape.head_dim)
        v = product(h, "value", layer).reshape(count, shape.num_kv_heads, shape.head_dim)
        q, k = norm(q, "query_norm", layer), norm(k, "key_norm", layer)
        rope = shape.ropes[layer_shape.rope]
        q, k, v = _rotate(rope, q), cached(_rotate(rope, k)), cached(v)
        scale = shape.attention_scale or 1.0 / np.sqrt(shape.head_dim)
        scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1)) * scale
        scores = softened(scores, shape.attention_softcap)
        scores[:, ~_visible(count, layer_shape.window)] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hts,shd->thd", p, np.repeat(v, group, axis=1)).reshape(count, -1)
        x = x + norm(product(mixed, "attention_output", layer), "attention_post_norm", layer)
        h = norm(x, "ffn_norm", layer)
        if shape.num_experts:
            y = experts(h, layer)
        else:
            y = feed_forward(h, *(tensors[role, layer] for role in ("ffn_gate", "ffn_up", "ffn_down")))
        x = x + norm(y, "ffn_post_norm", layer)
    head = "token_embedding" if shape.tied_embeddings else "output"
    return softened(product(norm(x, "output_norm"), head), shape.logit_softcap)


def _visible(count: int, window: int | None) -> NDArray[np.bool_]:
    """(row, position): which positions a row sees."""
    distance = np.arange(count)[:, None] - np.arange(count)[None, :]
    return (distance >= 0) & (distance < (window or count))


def _rotate(rope: Rope, x: F64) -> F64:
    """Rotate (num_tokens, num_heads, head_dim) from position 0."""
    angles = np.arange(len(x))[:, None] * np.array(rope.frequencies)[None, :]
    cosine, sine = (rope.scale * values[:, None, :] for values in (np.cos(angles), np.sin(angles)))
    half, out = rope.dim // 2, x.copy()
    if rope.interleaved:
        first, second = slice(0, rope.dim, 2), slice(1, rope.dim, 2)
    else:
        first, second = slice(0, half), slice(half, rope.dim)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cosine - b * sine, a * sine + b * cosine
    return out
