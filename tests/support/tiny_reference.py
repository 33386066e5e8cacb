"""The forward pass in numpy float64, from values rounded as the formats say: what the native core approximates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway import _native
from headway.core.plan import ModelShape, Rope
from support.tiny_shapes import F32, F64, Tensors


def round_bf16(values: F32) -> F32:
    """Round to bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def bf16(values: F64) -> F64:
    """The same for float64."""
    return round_bf16(values.astype(np.float32)).astype(np.float64)


def rounds_factors(isa: str) -> bool:
    """Whether an instruction set ("auto" = the best) has dot products of bfloat16, which round both factors."""
    return (_native.available_isas()[-1] if isa == "auto" else isa) == "avx512bf16"


def quantize(values: F64, group_size: int, *, half_scale: bool = False) -> F64:
    """Round to int8 by groups along the last axis, symmetric; what the runtime's integers stand for."""
    size = values.shape[-1]
    groups = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -size % group_size)])
    groups = groups.reshape(*values.shape[:-1], -1, group_size)
    scale = (np.abs(groups).max(axis=-1, keepdims=True) / 127.0).astype(np.float32)
    if (
        half_scale
    ):  # relative to the row's greatest, upwards, so that the largest weight stays within 127 scales
        factor = np.exp2(np.floor(np.log2(np.maximum(scale.max(axis=-2, keepdims=True), 1e-30))))
        half = (scale / factor).astype(np.float16)
        half = np.where(half < scale / factor, np.nextafter(half, np.float16(np.inf)), half)
        scale = half.astype(np.float32) * factor
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
    dots: bool = False,
) -> F64:
    """Logits of every position (num_tokens, vocab_size) in float64, from values rounded as the formats say.

    An int8 cache meets words of 16 bits. `dots`: bf16 weights and a bf16 cache meet bfloat16 (`rounds_factors`).
    """

    def rounded(values: F32) -> F64:
        if weights == "int8":
            return quantize(values.astype(np.float64), group_size, half_scale=True)
        return (round_bf16(values) if weights == "bf16" else values).astype(np.float64)

    def times(x: F64, values: F32) -> F64:
        if weights == "int8":
            x = quantize(x, group_size)
        result: F64 = x @ rounded(values).T
        return result

    def product(x: F64, role: str, layer: int | None = None) -> F64:
        result = times(x, tensors[role, layer])
        return result + tensors[f"{role}_bias", layer] if (f"{role}_bias", layer) in tensors else result

    def cached(x: F64) -> F64:
        if kv == "int8":
            return quantize(x, shape.head_dim)
        return bf16(x) if kv == "bf16" else x

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
        cap = shape.attention_softcap
        scale = (shape.attention_scale or 1.0 / np.sqrt(shape.head_dim)) / (cap or np.log(2.0))
        q, k = _rotate(rope, q) * scale, np.repeat(cached(_rotate(rope, k)), group, axis=1)
        steps = np.repeat(np.abs(v).max(axis=-1), group, axis=1).T[
            :, None, :
        ]  # (num_heads, 1, num_positions)
        v = np.repeat(cached(v), group, axis=1)
        if kv == "int8":
            q = _words(q)
        elif kv == "bf16" and dots:
            q = bf16(q)
        scores = np.einsum("thd,shd->hts", q, k)  # in base 2
        if cap is not None:
            scores = cap / np.log(2.0) * np.tanh(scores)
        scores[:, ~_visible(count, layer_shape.window)] = -np.inf
        mixed, total = np.zeros_like(q), np.zeros((count, shape.num_heads, 1))
        for begin in range(0, count, 256):
            span = slice(begin, begin + 256)
            top = np.maximum(scores[..., span].max(axis=-1, keepdims=True), -1e300)  # some see nothing of it
            p = np.exp2(scores[..., span] - top)
            if kv == "bf16" and dots:
                p = bf16(p)
            share = np.exp2(top - scores.max(axis=-1, keepdims=True))
            total += (p * share).sum(axis=-1).T[:, :, None]
            if kv == "int8":
                p = _words(p * steps[..., span]) / steps[..., span]
            mixed += np.einsum("hts,shd->thd", p * share, v[span])
        h = product((mixed / total).reshape(count, -1), "attention_output", layer)
        x = x + norm(h, "attention_post_norm", layer)
        h = norm(x, "ffn_norm", layer)
        if shape.num_experts:
            y = experts(h, layer)
        else:
            y = feed_forward(h, *(tensors[role, layer] for role in ("ffn_gate", "ffn_up", "ffn_down")))
        x = x + norm(y, "ffn_post_norm", layer)
    head = "token_embedding" if shape.tied_embeddings else "output"
    return softened(product(norm(x, "output_norm"), head), shape.logit_softcap)


def _words(x: F64) -> F64:
    """Round to 16 bits along the last axis, symmetric: what meets an int8 cache."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / 32767.0
    result: F64 = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)) * scale
    return result


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
