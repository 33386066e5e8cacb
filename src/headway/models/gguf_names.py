"""What GGUF files call the tensors of a decoder, for each architecture (gguf-py's constants.py, src/llama-arch.cpp)."""

from collections.abc import Sequence

from headway.models.architecture_table import Architecture
from headway.models.placement import Holder

_OUTSIDE = (
    Holder("token_embd.weight", ("token_embedding",)),
    Holder("output_norm.weight", ("output_norm",)),
    Holder("output.weight", ("output",)),
)
_ATTENTION = (
    Holder("blk.{layer}.attn_norm.weight", ("attention_norm",)),
    Holder("blk.{layer}.attn_q.weight", ("query",)),
    Holder("blk.{layer}.attn_k.weight", ("key",)),
    Holder("blk.{layer}.attn_v.weight", ("value",)),
    Holder("blk.{layer}.attn_qkv.weight", ("query", "key", "value")),
    Holder("blk.{layer}.attn_q.bias", ("query_bias",)),
    Holder("blk.{layer}.attn_k.bias", ("key_bias",)),
    Holder("blk.{layer}.attn_v.bias", ("value_bias",)),
    Holder("blk.{layer}.attn_qkv.bias", ("query_bias", "key_bias", "value_bias")),
    Holder("blk.{layer}.attn_q_norm.weight", ("query_norm",)),
    Holder("blk.{layer}.attn_k_norm.weight", ("key_norm",)),
    Holder("blk.{layer}.attn_output.weight", ("attention_output",)),
    Holder("blk.{layer}.post_attention_norm.weight", ("attention_post_norm",)),
    Holder("blk.{layer}.ffn_norm.weight", ("ffn_norm",)),
    Holder("blk.{layer}.post_ffw_norm.weight", ("ffn_post_norm",)),
)
_DENSE = (
    Holder("blk.{layer}.ffn_gate.weight", ("ffn_gate",)),
    Holder("blk.{layer}.ffn_up.weight", ("ffn_up",)),
    Holder("blk.{layer}.ffn_down.weight", ("ffn_down",)),
)
_FUSED = (
    Holder("blk.{layer}.ffn_up.weight", ("ffn_gate", "ffn_up")),
    Holder("blk.{layer}.ffn_down.weight", ("ffn_down",)),
)
_EXPERTS = (
    Holder("blk.{layer}.ffn_gate_inp.weight", ("router",)),
    Holder("blk.{layer}.ffn_gate_exps.weight", ("ffn_gate",), stacked=True),
    Holder("blk.{layer}.ffn_up_exps.weight", ("ffn_up",), stacked=True),
    Holder("blk.{layer}.ffn_gate_up_exps.weight", ("ffn_gate", "ffn_up"), stacked=True),
    Holder("blk.{layer}.ffn_down_exps.weight", ("ffn_down",), stacked=True),
)


def holders(row: Architecture) -> Sequence[Holder]:
    """Return the tensors that a model of this architecture may have, and the roles they hold."""
    return (*_OUTSIDE, *_ATTENTION, *(_EXPERTS if row.experts else _FUSED if row.fused else _DENSE))
