"""Writes a tiny checkpoint as a GGUF file with llama.cpp's names and conventions.

What its converter does (llama.cpp, conversion/): queries and keys of llama are reordered so that the halves of a head
that rotate together lie side by side; gemma's norms, which a folder stores less 1, are whole; experts are stacked into
one tensor; phi3's fused projections stay fused; scaled rotations are keys, or, for llama3 and longrope, tensors that
divide the frequencies. Vectors, routers and those tensors are F32.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from headway.core.plan import TensorType
from support.checkpoint_case import Case, Config
from support.checkpoint_weights import F32Array, head_dim
from support.ggml_blocks import encode
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf
from support.tiny_gguf import tiny_tokenizer

ARCHITECTURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gemma2": "gemma2",
        "gemma3_text": "gemma3",
        "llama": "llama",
        "mistral": "llama",
        "phi3": "phi3",
        "qwen2": "qwen2",
        "qwen3": "qwen3",
        "qwen3_moe": "qwen3moe",
    }
)

_TENSOR_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "input_layernorm": "attn_norm",
        "mlp.down_proj": "ffn_down",
        "mlp.gate": "ffn_gate_inp",
        "mlp.gate_proj": "ffn_gate",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.up_proj": "ffn_up",
        "post_attention_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "self_attn.k_norm": "attn_k_norm",
        "self_attn.k_proj": "attn_k",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.v_proj": "attn_v",
    }
)


def write_checkpoint_gguf(path: Path, case: Case, weights: Mapping[str, F32Array]) -> Path:
    """Write `case` to `path` and return it."""
    tensors = [
        TensorInput(name, values.shape[::-1], kind := storage_type(case, name, values), encode(values, kind))
        for name, values in gguf_tensors(case.config, weights)
    ]
    path.write_bytes(encode_gguf(gguf_metadata(case.config), tensors))
    return path


def storage_type(case: Case, name: str, values: F32Array) -> TensorType:
    """Return how the file stores the tensor `name`."""
    if values.ndim == 1 or ".ffn_gate_inp." in name:
        return TensorType.F32
    kinds = [kind for beginning, kind in case.types.items() if name.startswith(beginning)]
    return TensorType[kinds[0] if kinds else case.dtype]


def gguf_tensors(config: Config, weights: Mapping[str, F32Array]) -> Iterator[tuple[str, F32Array]]:
    """Yield the tensors of a GGUF file by name, as float32 values: (rows, columns), stacked ones (experts, …)."""
    gemma = config["model_type"].startswith("gemma")
    experts: dict[str, list[F32Array]] = {}
    for name, values in weights.items():
        if ".experts." in name:
            layer, which = name.split(".")[2], name.split(".")[-2].removesuffix("_proj")
            stack = experts.setdefault(f"blk.{layer}.ffn_{which}_exps.weight", [])
            stack.append(values)
            continue
        if gemma and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if config["model_type"] in ("llama", "mistral") and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = side_by_side(values, head_dim(config))
        yield gguf_name(config, name), values
    yield from ((name, np.stack(stack)) for name, stack in experts.items())
    yield from _rotation_tensors(config)


def gguf_name(config: Config, name: str) -> str:
    """Return what a GGUF file calls the tensor that `transformers` calls `name`."""
    fixed = {
        "lm_head.weight": "output.weight",
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, middle = name.split(".", 3)
    module, ending = middle.rsplit(".", 1)
    if module == "post_attention_layernorm" and config["model_type"].startswith("gemma"):
        return f"blk.{layer}.post_attention_norm.{ending}"
    return f"blk.{layer}.{_TENSOR_NAMES[module]}.{ending}"


def folder_weights(
    config: Config, names: Iterable[str], tensors: Mapping[str, F32Array]
) -> dict[str, F32Array]:
    """Return the weights that a folder calls `names` from a file's `tensors`: the inverse of `gguf_tensors`."""
    weights: dict[str, F32Array] = {}
    for name in names:
        if ".experts." in name:
            _, _, layer, _, _, expert, module, _ = name.split(".")
            stack = tensors[f"blk.{layer}.ffn_{module.removesuffix('_proj')}_exps.weight"]
            weights[name] = stack[int(expert)]
            continue
        values = tensors[gguf_name(config, name)]
        if config["model_type"].startswith("gemma") and name.endswith("norm.weight"):
            values = values - np.float32(1)
        if config["model_type"] in ("llama", "mistral") and name.endswith(("q_proj.weight", "k_proj.weight")):
            pairs = values.reshape(-1, head_dim(config) // 2, 2, values.shape[-1])
            values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
        weights[name] = values
    return weights


def side_by_side(values: F32Array, size: int) -> F32Array:
    """Reorder the rows of every head from (first half, second half) to pairs (2i, 2i + 1)."""
    halves = values.reshape(-1, 2, size // 2, values.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def gguf_metadata(config: Config) -> dict[str, MetadataInput]:
    """Return the keys that llama.cpp's converter writes for this configuration, and a tokenizer."""
    architecture = ARCHITECTURES[config["model_type"]]
    keys: dict[str, MetadataInput] = {
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
    }
    if "head_dim" in config:
        keys |= {"attention.key_length": head_dim(config), "attention.value_length": head_dim(config)}
    if architecture == "llama":
        keys |= {"rope.dimension_count": head_dim(config), "vocab_size": config["vocab_size"]}
    if architecture == "phi3":
        rotated = int(config["partial_rotary_factor"] * head_dim(config))
        keys |= {
            "attention.sliding_window": config["sliding_window"] or 0,
            "rope.dimension_count": rotated,
            "rope.scaling.original_context_length": config["original_max_position_embeddings"],
        }
    if architecture in ("gemma2", "gemma3"):
        keys["attention.sliding_window"] = config["sliding_window"]
        caps = {"attn_logit_softcapping", "final_logit_softcapping"} & config.keys()
        keys |= {name: config[name] for name in sorted(caps)}
        if config["query_pre_attn_scalar"] != head_dim(config):
            keys["attention.scale"] = config["query_pre_attn_scalar"] ** -0.5
    if architecture == "qwen3moe":
        keys |= {
            "expert_count": config["num_experts"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_used_count": config["num_experts_per_tok"],
        }
        if not config["norm_topk_prob"]:
            keys["expert_weights_norm"] = False
    keys |= _layer_pattern(config) | _rotation_keys(config)
    return {
        "general.architecture": architecture,
        "general.name": "tiny",
        **{f"{architecture}.{key}": value for key, value in keys.items()},
        **tiny_tokenizer(config["vocab_size"]),
    }


def rotations(config: Config) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return the parameters of the rotation and, if they differ, of that in local layers, in the words of 5.x."""
    written: Mapping[str, Any] | None = config.get("rope_parameters")
    if written is None:
        scaling = dict(config.get("rope_scaling") or {"rope_type": "default"})
        scaling["rope_type"] = scaling.pop("type", scaling.get("rope_type"))
        local = config.get("rope_local_base_freq")
        whole = {"rope_theta": config["rope_theta"], **scaling}
        return whole, None if local is None else {"rope_theta": local, "rope_type": "default"}
    if "full_attention" in written:
        return written["full_attention"], written["sliding_attention"]
    return written, None


def _layer_pattern(config: Config) -> dict[str, MetadataInput]:
    """Return how often a layer is global, which a file need not say when the architecture's own pattern is meant."""
    layers = config.get("layer_types")
    if layers is None:
        return {}
    period = layers.index("full_attention") + 1
    return {"attention.sliding_window_pattern": period}


def _rotation_keys(config: Config) -> dict[str, MetadataInput]:
    whole, local = rotations(config)
    keys: dict[str, MetadataInput] = {"rope.freq_base": float(whole["rope_theta"])}
    if local is not None:
        keys["rope.freq_base_swa"] = float(local["rope_theta"])
    kind = whole["rope_type"]
    if kind in ("linear", "yarn"):
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": float(whole["factor"])}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = whole["original_max_position_embeddings"]
    if kind == "longrope":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(scale) / math.log(original))
    return keys


def _rotation_tensors(config: Config) -> Iterator[tuple[str, F32Array]]:
    whole, _ = rotations(config)
    if whole["rope_type"] == "longrope":
        yield "rope_factors_long.weight", np.array(whole["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(whole["short_factor"], np.float32)
    if whole["rope_type"] == "llama3":
        size = head_dim(config)
        frequencies = whole["rope_theta"] ** -(np.arange(0, size, 2) / size)
        rotated = (
            whole["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        )  # times, in the original context
        low, high = whole["low_freq_factor"], whole["high_freq_factor"]
        smooth = np.clip((rotated - low) / (high - low), 0, 1)
        yield "rope_freqs.weight", (1 / ((1 - smooth) / whole["factor"] + smooth)).astype(np.float32)
