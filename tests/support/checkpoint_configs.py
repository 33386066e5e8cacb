"""The config.json of tiny models, one function an architecture: what all its cases share, and what a case replaces.

Sizes are uneven on purpose; heads have 16 dimensions to 256, as those of published models.
"""

from types import MappingProxyType
from typing import Any, Final

from support.checkpoint_case import VOCAB_SIZE, WINDOW, Config

_TOKENS: Final = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def model_config(model_type: str, architecture: str, **values: Any) -> Config:
    base = {
        "architectures": [architecture],
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": 72,
        "intermediate_size": 136,
        "max_position_embeddings": 1024,
        "model_type": model_type,
        "num_attention_heads": 6,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
        **_TOKENS,
        **values,
    }
    return MappingProxyType(base)


def llama_config(**values: Any) -> Config:
    fixed = {"attention_bias": False, "head_dim": 16, "mlp_bias": False, "torch_dtype": "bfloat16"}
    return model_config("llama", "LlamaForCausalLM", **{**fixed, **values})


def qwen2_config(**values: Any) -> Config:
    sizes = {"hidden_size": 96, "max_window_layers": 2, "rope_theta": 1e6, "sliding_window": WINDOW}
    fixed = {"torch_dtype": "bfloat16", "use_sliding_window": False}
    return model_config("qwen2", "Qwen2ForCausalLM", **{**sizes, **fixed, **values})


def qwen3moe_config(**values: Any) -> Config:
    sizes = {"decoder_sparse_step": 1, "head_dim": 32, "hidden_size": 96, "moe_intermediate_size": 40}
    experts = {"mlp_only_layers": [], "norm_topk_prob": True, "num_experts": 8, "num_experts_per_tok": 2}
    fixed = {
        "attention_bias": False,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "rope_theta": 1e6,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    return model_config("qwen3_moe", "Qwen3MoeForCausalLM", **{**sizes, **experts, **fixed, **values})


def phi3_config(**values: Any) -> Config:
    fixed = {
        "embd_pdrop": 0.0,
        "hidden_size": 96,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "original_max_position_embeddings": 1024,
        "partial_rotary_factor": 0.75,
        "resid_pdrop": 0.0,
        "rope_scaling": None,
        "rope_theta": 10_000.0,
        "sliding_window": None,
    }
    return model_config("phi3", "Phi3ForCausalLM", **{**fixed, **values})


def gemma2_config(**values: Any) -> Config:
    fixed = {
        "attention_bias": False,
        "attn_logit_softcapping": 2.5,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 6.0,
        "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 32,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": WINDOW,
        "tie_word_embeddings": True,
    }
    return model_config("gemma2", "Gemma2ForCausalLM", **{**fixed, **values})


def gemma3_config(**values: Any) -> Config:
    fixed = {
        "attention_bias": False,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "query_pre_attn_scalar": 32,
        "rms_norm_eps": 1e-6,
        "sliding_window": WINDOW,
        "tie_word_embeddings": True,
    }
    config = {**model_config("gemma3_text", "Gemma3ForCausalLM", **{**fixed, **values})}
    del config["hidden_act"]
    return MappingProxyType(config)
