"""The architectures that we compute, one row each: what a model's configuration leaves unsaid about it.

It reads nothing; `gguf_plan` and `hf_plan` read configurations by it. Sources: llama.cpp (src/models/*.cpp, conversion/*.py)
for GGUF files, the configuration_*.py and modeling_*.py of `transformers` 5 for folders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder of RMS norms, rotary positions and gated feed-forward networks; what it has is said by the fields."""

    name: str
    """In `ModelShape`, and `general.architecture` of a GGUF file unless `gguf` is False."""
    model_type: str
    """In config.json."""
    classes: Sequence[str]
    """What config.json may name under `architectures`; all of them compute the same, some leave the logits out."""
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    experts: bool = False
    fused: bool = False
    """Query, key and value, and gate and up, each lie in one tensor."""
    scaled_embeddings: bool = False
    """By the square root of the hidden size."""
    soft_caps: frozenset[Literal["attn", "final"]] = frozenset()
    partial_rotation: bool = False
    """Not all dimensions of a head need rotate."""
    local_theta: float | None = None
    """Layers with a window rotate by this base unless the configuration has another; None = as all layers do."""

    gguf: bool = True
    gguf_interleaved: bool = False
    """The converter reordered queries and keys so that pairs (2i, 2i+1) rotate."""
    gguf_theta: float | None = 10_000.0
    """Where rope.freq_base is missing; None = refused, because readers differ."""
    gguf_window: int | None = 0
    """Where attention.sliding_window is missing; 0 = none, None = refused but for the next."""
    gguf_windows: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By layers and context, of files that are older than the key."""
    gguf_period: int | None = None
    """Of n layers the last is global, 0 = none is; None = a window is refused, because no reader says where."""
    gguf_scale_of_hidden: int | None = None
    """With this many layers scores are scaled by 1 / sqrt(hidden_size / num_heads): the one size that differs."""

    norms_less_one: bool = False
    """A folder's norm weights are stored less 1."""
    windows: Literal["never", "always", "if_used", "from_layer", "by_type"] = "never"
    """Which layers of a folder have `sliding_window`: all of them; all, from `max_window_layers` on or none as
    `use_sliding_window` says; those that `layer_types` or `hf_period` name."""
    hf_period: int = 0
    defaults: Mapping[str, object] = field(default_factory=dict)
    """What `transformers` takes where config.json lacks a key that published files do leave out."""


ARCHITECTURES: Sequence[Architecture] = (
    Architecture(
        name="llama",
        model_type="llama",
        classes=("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"),
        gguf_interleaved=True,
        defaults={"max_position_embeddings": 2048, "rms_norm_eps": 1e-6},
    ),
    Architecture(
        name="mistral",
        model_type="mistral",
        classes=("MistralForCausalLM", "MistralModel"),
        gguf=False,  # converted as "llama"
        windows="always",
        defaults={
            "max_position_embeddings": 131_072,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
        },
    ),
    Architecture(
        name="qwen2",
        model_type="qwen2",
        classes=("Qwen2ForCausalLM", "Qwen2Model"),
        qkv_bias=True,
        windows="from_layer",
        defaults={
            "max_position_embeddings": 32_768,
            "max_window_layers": 28,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
        },
    ),
    Architecture(
        name="qwen3",
        model_type="qwen3",
        classes=("Qwen3ForCausalLM", "Qwen3Model"),
        qk_norm=True,
        windows="from_layer",
        defaults={
            "head_dim": 128,
            "max_position_embeddings": 32_768,
            "max_window_layers": 28,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
        },
    ),
    Architecture(
        name="qwen3moe",
        model_type="qwen3_moe",
        classes=("Qwen3MoeForCausalLM", "Qwen3MoeModel"),
        qk_norm=True,
        experts=True,
        windows="if_used",
        defaults={
            "max_position_embeddings": 32_768,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
        },
    ),
    Architecture(
        name="phi3",
        model_type="phi3",
        classes=("Phi3ForCausalLM", "Phi3Model"),
        fused=True,
        partial_rotation=True,
        gguf_window=None,
        gguf_windows={(32, 4096): 2047, (40, 4096): 2047, (32, 131_072): 0, (40, 131_072): 0},
        gguf_period=0,
        windows="always",
        defaults={
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
        },
    ),
    Architecture(
        name="gemma2",
        model_type="gemma2",
        classes=("Gemma2ForCausalLM", "Gemma2Model"),
        activation="gelu_tanh",
        post_norms=True,
        scaled_embeddings=True,
        soft_caps=frozenset({"attn", "final"}),
        gguf_window=4096,
        gguf_period=2,
        gguf_scale_of_hidden=46,  # of the 27B model
        norms_less_one=True,
        windows="by_type",
        hf_period=2,
        defaults={
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    Architecture(
        name="gemma3",
        model_type="gemma3_text",  # inside a `gemma3` folder as well
        classes=(
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
            "Gemma3Model",
            "Gemma3TextModel",
        ),
        activation="gelu_tanh",
        qk_norm=True,
        post_norms=True,
        scaled_embeddings=True,
        soft_caps=frozenset({"final"}),
        local_theta=10_000.0,
        gguf_theta=None,
        gguf_period=6,
        gguf_scale_of_hidden=62,  # of the 27B model
        norms_less_one=True,
        windows="by_type",
        hf_period=6,
        defaults={
            "final_logit_softcapping": None,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "max_position_embeddings": 131_072,
            "num_attention_heads": 8,
            "num_hidden_layers": 26,
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
            "vocab_size": 262_208,
        },
    ),
)


def by_gguf_name(name: str) -> Architecture | None:
    """Return the architecture that a GGUF file calls `name`, if we compute it."""
    return next((row for row in ARCHITECTURES if row.gguf and row.name == name), None)


def by_model_type(model_type: str) -> Architecture | None:
    """Return the architecture that config.json calls `model_type`, if we compute it."""
    return next((row for row in ARCHITECTURES if row.model_type == model_type), None)
