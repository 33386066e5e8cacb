"""How much work a step is, to tell what share of the machine it used (Williams and others, "Roofline", CACM 52/4, 2009).

Only matrix products count as operations, and only weights and the KV cache as bytes: the least that must be done. So a
share of 1 cannot be reached, and what is missing is either waste or attention, norms and sampling.
"""

from dataclasses import replace

from headway.core.plan import ModelShape


def matmul_ops(shape: ModelShape, *, num_tokens: int, num_logit_rows: int = 1) -> int:
    """Return the operations (a multiply and an add are two) of the matrix products of a step."""
    heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention = shape.hidden_size * (2 * heads + 2 * kv_heads)
    num_ffn = shape.num_experts_per_token if shape.num_experts else 1
    ffn = num_ffn * 3 * shape.hidden_size * shape.ffn_size + shape.num_experts * shape.hidden_size
    layers = shape.num_layers * (attention + ffn) * num_tokens
    return 2 * (layers + shape.vocab_size * shape.hidden_size * num_logit_rows)


def read_once(shape: ModelShape) -> ModelShape:
    """Return the shape whose weights are what one token's step reads of `shape`'s: its own experts, and no table of
    embeddings beside the output matrix."""
    return replace(
        shape,
        tied_embeddings=True,
        num_experts=shape.num_experts_per_token if shape.num_experts else 0,
    )


def kv_tokens(shape: ModelShape, *, context: int) -> float:
    """Return how many tokens' keys and values, of all layers, a token's attention reads at that context."""
    seen = sum(min(context, layer.window or context) for layer in shape.layers)
    return seen / shape.num_layers
