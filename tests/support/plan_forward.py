"""A plan computed in numpy and double precision: what its tensors and constants mean, written down a second time.

It shows that a plan is right without the native core, to six digits instead of to what bf16 or int8 leave of it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headway.core.plan import LayerShape, ModelPlan, ModelShape, Role, Rope
from support.ggml_blocks import decode

F64 = npt.NDArray[np.float64]


class PlanForward:
    """A model of a plan, with its weights as float64."""

    def __init__(self, plan: ModelPlan, *, max_context: int | None = None) -> None:
        self._shape = plan.shape
        self._weights = _read_weights(plan)
        long = plan.shape.long_context
        extended = long is not None and max_context is not None and max_context > long.original_context
        self._ropes = long.ropes if long is not None and extended else plan.shape.ropes

    def logits(self, tokens: Sequence[int]) -> F64:
        """Return the logits (num_tokens, vocab_size) of one sequence."""
        shape = self._shape
        x = self._weight("token_embedding")[np.array(tokens)] * shape.embedding_scale
        for layer, kind in enumerate(shape.layers):
            mixed = self._attention(self._norm(x, "attention_norm", layer), layer, kind)
            x = x + (self._norm(mixed, "attention_post_norm", layer) if shape.post_norms else mixed)
            fed = self._feed_forward(self._norm(x, "ffn_norm", layer), layer)
            x = x + (self._norm(fed, "ffn_post_norm", layer) if shape.post_norms else fed)
        head = self._weight("token_embedding" if shape.tied_embeddings else "output")
        return _capped(self._norm(x, "output_norm") @ head.T, shape.logit_softcap)

    def _weight(self, role: Role, layer: int | None = None, expert: int | None = None) -> F64:
        return self._weights[role, layer, expert]

    def _norm(self, x: F64, role: Role, layer: int | None = None) -> F64:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        result: F64 = x / np.sqrt(mean_square + self._shape.norm_epsilon) * self._weight(role, layer)
        return result

    def _attention(self, x: F64, layer: int, kind: LayerShape) -> F64:
        shape, rope = self._shape, self._ropes[kind.rope]
        query, key, value = (x @ self._weight(role, layer).T for role in ("query", "key", "value"))
        if shape.qkv_bias:
            query = query + self._weight("query_bias", layer)
            key = key + self._weight("key_bias", layer)
            value = value + self._weight("value_bias", layer)
        query, key, value = (_by_head(part, shape.head_dim) for part in (query, key, value))
        if shape.qk_norm:
            query, key = self._norm(query, "query_norm", layer), self._norm(key, "key_norm", layer)
        query, key = _rotated(query, rope), _rotated(key, rope)
        shared = shape.num_heads // shape.num_kv_heads
        key, value = np.repeat(key, shared, axis=0), np.repeat(value, shared, axis=0)
        scale = shape.head_dim**-0.5 if shape.attention_scale is None else shape.attention_scale
        scores = _capped(query @ key.swapaxes(1, 2) * scale, shape.attention_softcap)
        scores += _mask(len(x), kind.window)
        mixed = (_softmax(scores) @ value).swapaxes(0, 1).reshape(len(x), -1)
        result: F64 = mixed @ self._weight("attention_output", layer).T
        return result

    def _feed_forward(self, x: F64, layer: int) -> F64:
        shape = self._shape
        if not shape.num_experts:
            return self._network(x, layer, None)
        weights = _softmax(x @ self._weight("router", layer).T)
        least = np.sort(weights, axis=-1)[:, [-shape.num_experts_per_token]]
        weights = np.where(weights >= least, weights, 0.0)
        if shape.normalize_experts:
            weights /= weights.sum(axis=-1, keepdims=True)
        outputs = [self._network(x, layer, expert) for expert in range(shape.num_experts)]
        mixed: F64 = np.einsum("te,eth->th", weights, np.stack(outputs))
        return mixed

    def _network(self, x: F64, layer: int, expert: int | None) -> F64:
        gate, up = (x @ self._weight(role, layer, expert).T for role in ("ffn_gate", "ffn_up"))
        result: F64 = (_activated(gate, self._shape) * up) @ self._weight("ffn_down", layer, expert).T
        return result


def _read_weights(plan: ModelPlan) -> dict[tuple[Role, int | None, int | None], F64]:
    files = [path.read_bytes() for path in plan.files]
    weights = {}
    for ref in plan.tensors:
        data = files[ref.file][ref.offset : ref.offset + ref.num_bytes]
        values = decode(data, ref.type, (ref.rows, ref.columns)).astype(np.float64) + ref.add
        weights[ref.role, ref.layer, ref.expert] = values
    return weights


def _by_head(x: F64, head_dim: int) -> F64:
    """Return (num_heads, num_tokens, head_dim) of (num_tokens, num_heads * head_dim)."""
    return x.reshape(len(x), -1, head_dim).swapaxes(0, 1)


def _rotated(x: F64, rope: Rope) -> F64:
    angles = np.arange(x.shape[1])[:, None] * np.array(rope.frequencies)
    cosine, sine = np.cos(angles) * rope.scale, np.sin(angles) * rope.scale
    half = rope.dim // 2
    first = slice(0, rope.dim, 2) if rope.interleaved else slice(0, half)
    second = slice(1, rope.dim, 2) if rope.interleaved else slice(half, rope.dim)
    rotated = x.copy()
    rotated[..., first] = x[..., first] * cosine - x[..., second] * sine
    rotated[..., second] = x[..., first] * sine + x[..., second] * cosine
    return rotated


def _mask(count: int, window: int | None) -> F64:
    """Return (num_tokens, num_tokens): 0 where the first sees the second, else minus infinity."""
    behind = np.arange(count)[:, None] - np.arange(count)
    return np.where((behind >= 0) & (behind < (count if window is None else window)), 0.0, -np.inf)


def _activated(x: F64, shape: ModelShape) -> F64:
    if shape.activation == "silu":
        silu: F64 = x / (1 + np.exp(-x))
        return silu
    gelu: F64 = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return gelu


def _capped(x: F64, cap: float | None) -> F64:
    return x if cap is None else cap * np.tanh(x / cap)


def _softmax(x: F64) -> F64:
    shares: F64 = x - x.max(axis=-1, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares
