"""The plan of a model from a Hugging Face folder: its sizes, its constants and the place of each tensor.

It accepts only what the forward pass computes exactly; a key or tensor that would change the output is refused by name.
What keys and tensor names mean: `transformers` 5, configuration_*.py and modeling_*.py; the architecture is decided by
`model_type` and `architectures` alone.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from headway.core.plan import LayerShape, ModelPlan, ModelShape
from headway.models.architecture_table import ARCHITECTURES, Architecture, by_model_type
from headway.models.hf_config import OFF_VALUES, HfConfig, read_config
from headway.models.hf_names import head_name, holders, is_ignored, tensor_prefix
from headway.models.hf_rope import longest_context, read_ropes
from headway.models.hf_weights import read_weights
from headway.models.limits import MAX_EXPERTS, MAX_LAYERS
from headway.models.placement import StoredTensor, place_tensors
from headway.models.quote import quoted
from headway.models.rope import float32

_UNDERSTOOD = frozenset(
    {
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "original_max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
    }
)
_UNDERSTOOD_BY: Mapping[str, frozenset[str]] = {
    "always": frozenset({"sliding_window"}),
    "by_type": frozenset({"sliding_window", "sliding_window_size"}),
    "from_layer": frozenset({"max_window_layers", "sliding_window", "use_sliding_window"}),
    "if_used": frozenset({"max_window_layers", "sliding_window", "use_sliding_window"}),
    "never": frozenset(),
}
_UNDERSTOOD_EXPERTS = frozenset(
    {
        "decoder_sparse_step",
        "mlp_only_layers",
        "moe_intermediate_size",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_local_experts",
    }
)
_ACTIVATIONS = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new")}


def plan_folder(folder: Path) -> ModelPlan:
    """Return the plan of the model in `folder`; its digest is not known.

    Raises ModelFileError for files that are missing, invalid or lead out of the folder, for a missing or contradictory
    key, a missing or misshapen tensor, and for anything that we could not compute exactly.
    """
    config, row = _read_config(folder)
    files, tensors = read_weights(folder)
    prefix = tensor_prefix(tensors, str(folder))
    shape = _read_shape(config, row, tensors)
    placed = place_tensors(
        shape,
        holders(row, prefix, tensors),
        tensors,
        where=str(folder),
        norm_add=1.0 if row.norms_less_one else 0.0,
        ignored=is_ignored,
    )
    return ModelPlan(path=folder, files=files, file_sha256=None, shape=shape, tensors=placed)


def _read_config(folder: Path) -> tuple[HfConfig, Architecture]:
    """Return the configuration of the text model, its keys checked, and its architecture."""
    config = read_config(folder)
    model_type = config.text("model_type")
    classes = config.get("architectures")
    if "quantization_config" in config:
        method = config.inner("quantization_config").get("quant_method")
        config.fail(
            f"quantised weights ({quoted(method)}) are not supported; use the model's own folder or a GGUF file"
        )
    if model_type == "gemma3":
        config = _beside_vision(config)
        model_type = config.text("model_type", "gemma3_text")
    row = by_model_type(model_type)
    if row is None:
        supported = ", ".join(row.model_type for row in ARCHITECTURES)
        config.fail(f"the model_type {quoted(model_type)} is not supported (supported: {supported})")
    if classes is not None and (
        not isinstance(classes, list) or len(classes) > 1 or not set(map(str, classes)) <= set(row.classes)
    ):
        config.fail(
            f"architectures is {quoted(classes)}, which is not supported (supported: {', '.join(row.classes)})"
        )
    config = HfConfig(config.where, config.values, path=config.path, defaults=row.defaults)
    config.refuse_unsupported(_understood(row), {**OFF_VALUES, "use_qk_norm": (row.qk_norm,)})
    return config, row


def _beside_vision(config: HfConfig) -> HfConfig:
    """Return the configuration of a text model that lies beside a vision model, which text does not need."""
    key = "tie_word_embeddings"
    config.refuse_unsupported({"text_config", "vision_config", key})
    text = config.inner("text_config")
    said = [value for value in (text.values.get(key), config.values.get(key)) if value is not None]
    if len(said) == 2 and said[0] != said[1]:
        config.fail(f"{key} differs between the model and its text_config")
    return HfConfig(config.where, {**text.values, key: said[0] if said else True}, path=text.path)


def _understood(row: Architecture) -> frozenset[str]:
    """Return the keys that are read for this architecture."""
    found = _UNDERSTOOD | _UNDERSTOOD_BY[row.windows] | {f"{cap}_logit_softcapping" for cap in row.soft_caps}
    if row.experts:
        found |= _UNDERSTOOD_EXPERTS
    if row.partial_rotation:
        found |= {"partial_rotary_factor"}
    if row.local_theta is not None:
        found |= {"_sliding_window_pattern", "rope_local_base_freq", "sliding_window_pattern"}
    if "query_pre_attn_scalar" in row.defaults:
        found |= {"hidden_activation", "query_pre_attn_scalar"}
    return found


def _read_shape(config: HfConfig, row: Architecture, tensors: Mapping[str, StoredTensor]) -> ModelShape:
    hidden_size = config.size("hidden_size")
    num_heads = config.size("num_attention_heads")
    num_kv_heads = config.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        config.fail(f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    head_dim = config.size("head_dim", hidden_size // num_heads)
    _check_activation(config, row)
    num_layers = config.size("num_hidden_layers", maximum=MAX_LAYERS)
    max_context = config.size("max_position_embeddings")
    windows = _windows(config, row, num_layers)
    ropes, long_context = read_ropes(
        config, row, head_dim=head_dim, max_context=max_context, local=any(windows)
    )
    num_experts = _num_experts(config) if row.experts else 0
    return ModelShape(
        architecture=row.name,
        vocab_size=config.size("vocab_size"),
        max_context=longest_context(config, max_context),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=config.size("moe_intermediate_size" if row.experts else "intermediate_size"),
        norm_epsilon=config.number("rms_norm_eps"),
        # A head of its own counts even where the configuration says that there is none: so does `transformers`.
        tied_embeddings=config.flag("tie_word_embeddings", False) and head_name(tensors) not in tensors,
        ropes=ropes,
        layers=tuple(
            LayerShape(rope=1 if window and len(ropes) > 1 else 0, window=window) for window in windows
        ),
        long_context=long_context,
        activation=row.activation,
        attention_scale=_attention_scale(config, row, head_dim),
        attention_softcap=_soft_cap(config, row, "attn"),
        logit_softcap=_soft_cap(config, row, "final"),
        embedding_scale=float32(math.sqrt(hidden_size)) if row.scaled_embeddings else 1.0,
        qkv_bias=row.qkv_bias,
        qk_norm=row.qk_norm,
        post_norms=row.post_norms,
        num_experts=num_experts,
        num_experts_per_token=config.size("num_experts_per_tok", maximum=num_experts) if row.experts else 0,
        normalize_experts=config.flag("norm_topk_prob", False) if row.experts else True,
    )


def _check_activation(config: HfConfig, row: Architecture) -> None:
    key = "hidden_activation" if "hidden_activation" in row.defaults else "hidden_act"
    allowed = _ACTIVATIONS[row.activation]
    if config.text(key, "silu") not in allowed:
        config.fail(
            f"{config.path}{key} is {quoted(config.get(key))}, which is not supported (only {allowed[0]} is)"
        )


def _num_experts(config: HfConfig) -> int:
    """Return the experts of every layer; layers without any are refused."""
    if config.get("mlp_only_layers") not in (None, []) or config.integer("decoder_sparse_step", 1) != 1:
        config.fail("layers without experts (mlp_only_layers, decoder_sparse_step) are not supported")
    names = [name for name in ("num_experts", "num_local_experts") if name in config] or ["num_experts"]
    found = {config.size(name, maximum=MAX_EXPERTS) for name in names}
    if len(found) > 1:
        config.fail("num_experts differs from num_local_experts")
    return found.pop()


def _attention_scale(config: HfConfig, row: Architecture, head_dim: int) -> float | None:
    """Return what scores are multiplied by where it is not 1 / sqrt(head_dim)."""
    if "query_pre_attn_scalar" not in row.defaults:
        return None
    scalar = config.number("query_pre_attn_scalar")
    return None if scalar == head_dim else scalar**-0.5


def _soft_cap(config: HfConfig, row: Architecture, which: str) -> float | None:
    name = f"{which}_logit_softcapping"
    if which not in row.soft_caps or config.get(name) is None:
        return None
    return config.number(name)


def _windows(config: HfConfig, row: Architecture, num_layers: int) -> list[int | None]:
    """Return each layer's window, None where it sees everything."""
    window = None if config.get("sliding_window") is None else config.size("sliding_window")
    if row.windows in ("from_layer", "if_used") and not config.flag("use_sliding_window", False):
        window = None
    if config.get("sliding_window_size") not in (None, window):
        config.fail("sliding_window_size differs from sliding_window")
    match row.windows:
        case "never":
            local = [False] * num_layers
        case "always" | "if_used":
            local = [window is not None] * num_layers
        case "from_layer":
            first = config.integer("max_window_layers", num_layers)
            local = [window is not None and layer >= first for layer in range(num_layers)]
        case "by_type":
            period = config.size("sliding_window_pattern", row.hf_period)
            if "layer_types" not in config and config.size("_sliding_window_pattern", period) != period:
                config.fail(
                    "_sliding_window_pattern, which `transformers` does not heed, contradicts the pattern"
                )
            local = [bool((layer + 1) % period) for layer in range(num_layers)]
    if "layer_types" in config:
        written = config.get("layer_types")
        if not isinstance(written, list) or len(written) != num_layers:
            config.fail(f"{config.path}layer_types is not a list of {num_layers} types")
        if not all(kind in ("full_attention", "sliding_attention") for kind in written):
            config.fail(
                f"{config.path}layer_types holds something else than full_attention and sliding_attention"
            )
        said = [kind == "sliding_attention" for kind in written]
        if row.windows in ("never", "always", "if_used") and said != local:
            config.fail(
                f"{config.path}layer_types contradicts sliding_window, of which {row.name} has one for all layers"
            )
        local = said
    if window is None and any(local):
        config.fail(f"{config.path}sliding_window is missing, but layers have one")
    return [window if here else None for here in local]
