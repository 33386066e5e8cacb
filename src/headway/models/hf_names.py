"""What Hugging Face folders call the tensors of a decoder, for each architecture (modeling_*.py of `transformers`)."""

from collections.abc import Container, Sequence

from headway.core.errors import ModelFileError
from headway.models.architecture_table import Architecture
from headway.models.placement import Holder

_PREFIXES = (
    "model.",
    "",  # saved without a head
    "language_model.model.",  # beside a vision model, as the fourth major version wrote it
    "model.language_model.",  # and as the fifth does
)
_VISION = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def tensor_prefix(tensors: Container[str], where: str) -> str:
    """Return what the names of the decoder's tensors begin with; raises ModelFileError if it has no embedding."""
    for prefix in _PREFIXES:
        if f"{prefix}embed_tokens.weight" in tensors:
            return prefix
    raise ModelFileError(f"{where}: the tensor {_PREFIXES[0]}embed_tokens.weight is missing.")


def head_name(tensors: Container[str]) -> str:
    """Return what the matrix is called that gives the logits, if there is one."""
    beside_vision = "language_model.lm_head.weight"
    return beside_vision if beside_vision in tensors else "lm_head.weight"


def is_ignored(name: str) -> bool:
    """Whether a tensor is no part of the decoder: frequencies, which the configuration tells, and a vision model."""
    return name.endswith(".rotary_emb.inv_freq") or name.startswith(_VISION)


def holders(row: Architecture, prefix: str, tensors: Container[str]) -> Sequence[Holder]:
    """Return the tensors that a model of this architecture may have, and the roles they hold."""
    layer = prefix + "layers.{layer}."
    attention, mlp = layer + "self_attn.", layer + "mlp."
    before_ffn = "pre_feedforward_layernorm" if row.post_norms else "post_attention_layernorm"
    found = [
        Holder(f"{prefix}embed_tokens.weight", ("token_embedding",)),
        Holder(f"{prefix}norm.weight", ("output_norm",)),
        Holder(head_name(tensors), ("output",)),
        Holder(f"{layer}input_layernorm.weight", ("attention_norm",)),
        Holder(f"{attention}o_proj.weight", ("attention_output",)),
        Holder(f"{attention}q_norm.weight", ("query_norm",)),
        Holder(f"{attention}k_norm.weight", ("key_norm",)),
        Holder(f"{layer}{before_ffn}.weight", ("ffn_norm",)),
    ]
    if row.post_norms:
        found += [
            Holder(f"{layer}post_attention_layernorm.weight", ("attention_post_norm",)),
            Holder(f"{layer}post_feedforward_layernorm.weight", ("ffn_post_norm",)),
        ]
    if row.fused:
        found += [
            Holder(f"{attention}qkv_proj.weight", ("query", "key", "value")),
            Holder(f"{mlp}gate_up_proj.weight", ("ffn_gate", "ffn_up")),
            Holder(f"{mlp}down_proj.weight", ("ffn_down",)),
        ]
        return found
    found += [
        Holder(f"{attention}q_proj.weight", ("query",)),
        Holder(f"{attention}k_proj.weight", ("key",)),
        Holder(f"{attention}v_proj.weight", ("value",)),
        Holder(f"{attention}q_proj.bias", ("query_bias",)),
        Holder(f"{attention}k_proj.bias", ("key_bias",)),
        Holder(f"{attention}v_proj.bias", ("value_bias",)),
    ]
    if row.experts:
        found += [
            Holder(f"{mlp}gate.weight", ("router",)),
            Holder(f"{mlp}experts.{{expert}}.gate_proj.weight", ("ffn_gate",)),
            Holder(f"{mlp}experts.{{expert}}.up_proj.weight", ("ffn_up",)),
            Holder(f"{mlp}experts.{{expert}}.down_proj.weight", ("ffn_down",)),
            Holder(f"{mlp}experts.gate_up_proj", ("ffn_gate", "ffn_up"), stacked=True),
            Holder(f"{mlp}experts.down_proj", ("ffn_down",), stacked=True),
        ]
    else:
        found += [
            Holder(f"{mlp}gate_proj.weight", ("ffn_gate",)),
            Holder(f"{mlp}up_proj.weight", ("ffn_up",)),
            Holder(f"{mlp}down_proj.weight", ("ffn_down",)),
        ]
    return found
