"""The tiny random models that stand for the architectures: one case per way of computing, as its config.json.

Configurations are in the words of `transformers`, some as its fourth major version wrote them (`rope_theta`,
`rope_scaling`), some as the fifth does (`rope_parameters`): both are found in folders. Windows and original contexts are
short, so that a few hundred positions go beyond them and beyond spans of 256.
"""

from collections.abc import Sequence
from typing import Final

from support.checkpoint_case import WINDOW, Ablation, Case
from support.checkpoint_configs import (
    gemma2_config,
    gemma3_config,
    llama_config,
    model_config,
    phi3_config,
    qwen2_config,
    qwen3moe_config,
)

__all__ = ["CASES"]

_LLAMA3: Final = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 128,
    "rope_type": "llama3",
}
_YARN: Final = {"factor": 8.0, "original_max_position_embeddings": 128, "type": "yarn"}
_SHORT_FACTORS: Final = [1.0, 1.0, 1.05, 1.1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 1.9, 2.1]
_LONG_FACTORS: Final = [1.0, 1.2, 1.6, 2.3, 3.0, 4.2, 6.0, 8.5, 11.0, 14.0, 15.5, 16.0]
_LONGROPE: Final = {"long_factor": _LONG_FACTORS, "short_factor": _SHORT_FACTORS, "type": "longrope"}
_WINDOW_OFF: Final = Ablation(name="no window", config={"sliding_window": None})
_WINDOW_WIDE: Final = Ablation(name="no window", config={"sliding_window": 4096})
_WINDOW_OFF_BY_ONE: Final = Ablation(
    name="window one wider", config={"sliding_window": WINDOW + 1}, least=0.03
)
_NO_SCALING: Final = Ablation(name="rotation not scaled", config={"rope_scaling": None})

_QK_NORMS: Final = (
    Ablation(name="query norm without weight", fill={"self_attn.q_norm.weight": 1.0}),
    Ablation(name="key norm without weight", fill={"self_attn.k_norm.weight": 1.0}),
)
_POST_NORMS: Final = (
    Ablation(name="attention norm after without weight", fill={"post_attention_layernorm.weight": 0.0}),
    Ablation(name="feed-forward norm after without weight", fill={"post_feedforward_layernorm.weight": 0.0}),
)

CASES: Final[Sequence[Case]] = (
    Case(
        name="llama",
        dtype="F16",
        config=llama_config(
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=4,
            rope_scaling=None,
            rope_theta=10_000.0,
            tie_word_embeddings=True,
            torch_dtype="float16",
        ),
        ablations=[Ablation(name="other frequencies", config={"rope_theta": 20_000.0})],
    ),
    Case(
        name="llama-untied",
        dtype="F32",
        num_shards=3,
        config=llama_config(
            dtype="float32",
            head_dim=64,
            num_attention_heads=4,
            rope_parameters={"rope_theta": 50_000.0, "rope_type": "default"},
        ),
        ablations=[
            Ablation(
                name="other frequencies",
                config={"rope_parameters": {"rope_theta": 100_000.0, "rope_type": "default"}},
            ),
        ],
    ),
    Case(
        name="llama3-rope",
        config=llama_config(rope_scaling=_LLAMA3, rope_theta=10_000.0),
        ablations=[
            _NO_SCALING,
            Ablation(
                name="other low frequency", config={"rope_scaling": {**_LLAMA3, "low_freq_factor": 2.0}}
            ),
            Ablation(
                name="other original context",
                config={"rope_scaling": {**_LLAMA3, "original_max_position_embeddings": 256}},
            ),
        ],
    ),
    Case(
        name="llama-linear",
        config=llama_config(
            head_dim=96, rope_parameters={"factor": 4.0, "rope_theta": 10_000.0, "rope_type": "linear"}
        ),
        ablations=[
            Ablation(
                name="rotation not scaled",
                config={"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"}},
            ),
        ],
    ),
    Case(
        name="mistral",
        sources=["folder"],  # llama.cpp's GGUF files of Mistral tell of no window
        config=model_config(
            "mistral",
            "MistralForCausalLM",
            head_dim=80,
            hidden_size=80,
            num_attention_heads=4,
            rope_theta=10_000.0,
            sliding_window=WINDOW,
            torch_dtype="bfloat16",
        ),
        ablations=[_WINDOW_OFF, _WINDOW_OFF_BY_ONE],
    ),
    Case(
        name="qwen2",
        config=qwen2_config(
            num_attention_heads=3,
            num_key_value_heads=1,
            rope_scaling=_YARN,
            rope_theta=10_000.0,
            tie_word_embeddings=True,
        ),
        ablations=[
            Ablation(name="no query bias", fill={"q_proj.bias": 0.0}),
            Ablation(name="no key bias", fill={"k_proj.bias": 0.0}),
            Ablation(name="no value bias", fill={"v_proj.bias": 0.0}),
            _NO_SCALING,
            Ablation(name="no attention factor", config={"rope_scaling": {**_YARN, "attention_factor": 1.0}}),
            Ablation(name="other beta", config={"rope_scaling": {**_YARN, "beta_fast": 8.0}}, least=0.04),
        ],
    ),
    Case(
        name="qwen2-window",
        sources=["folder"],  # nor do those of Qwen2
        config=qwen2_config(max_window_layers=1, num_hidden_layers=4, use_sliding_window=True),
        ablations=[
            Ablation(name="no window", config={"use_sliding_window": False}),
            Ablation(name="window in every layer", config={"max_window_layers": 0}),
            Ablation(name="window in one layer less", config={"max_window_layers": 2}),
            _WINDOW_OFF_BY_ONE,
        ],
    ),
    Case(
        name="qwen3",
        config=model_config(
            "qwen3",
            "Qwen3ForCausalLM",
            attention_bias=False,
            dtype="bfloat16",
            head_dim=128,
            max_window_layers=3,
            num_attention_heads=4,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
            sliding_window=None,
            tie_word_embeddings=True,
            use_sliding_window=False,
        ),
        ablations=_QK_NORMS,
    ),
    Case(
        name="qwen3moe",
        # Of eight, the model that int8 moves least in double precision (by 2.7 to 10 %): where a router decides narrowly,
        # a rounding chooses another expert, which is no mistake of whoever computes it.
        seed=3,
        num_shards=2,
        config=qwen3moe_config(),
        ablations=[
            *_QK_NORMS,
            Ablation(name="experts' weights not normalized", config={"norm_topk_prob": False}),
            Ablation(name="one expert", config={"num_experts_per_tok": 1}),
            Ablation(name="three experts", config={"num_experts_per_tok": 3}, least=0.1),
        ],
    ),
    Case(
        name="qwen3moe-raw",
        seed=4,
        llama_cpp=False,  # it normalizes always, whatever the file says
        config=qwen3moe_config(norm_topk_prob=False, num_experts=6, num_experts_per_tok=3),
        ablations=[Ablation(name="experts' weights normalized", config={"norm_topk_prob": True}, least=0.1)],
    ),
    Case(
        name="phi3",
        llama_cpp=False,  # it has switched windows off for phi3
        config=phi3_config(sliding_window=WINDOW),
        ablations=[
            _WINDOW_OFF,
            _WINDOW_OFF_BY_ONE,
            Ablation(name="all dimensions rotate", config={"partial_rotary_factor": 1.0}),
        ],
    ),
    Case(
        name="phi3-longrope-short",
        num_tokens=240,
        max_context=256,
        config=phi3_config(original_max_position_embeddings=256, rope_scaling=_LONGROPE),
        ablations=[
            Ablation(
                name="long factors",
                config={"rope_scaling": {**_LONGROPE, "short_factor": _LONG_FACTORS}},
            ),
            Ablation(
                name="no attention factor", config={"rope_scaling": {**_LONGROPE, "attention_factor": 1.0}}
            ),
            Ablation(name="no factors", config={"rope_scaling": {**_LONGROPE, "short_factor": [1.0] * 12}}),
        ],
    ),
    Case(
        name="phi3-longrope-long",
        max_context=640,
        config=phi3_config(original_max_position_embeddings=256, rope_scaling=_LONGROPE),
        ablations=[
            Ablation(
                name="short factors",
                config={"rope_scaling": {**_LONGROPE, "long_factor": _SHORT_FACTORS}},
            ),
            Ablation(
                name="no attention factor", config={"rope_scaling": {**_LONGROPE, "attention_factor": 1.0}}
            ),
        ],
    ),
    Case(
        name="gemma2",
        config=gemma2_config(),
        ablations=[
            Ablation(name="no cap on scores", config={"attn_logit_softcapping": None}),
            Ablation(name="no cap on logits", config={"final_logit_softcapping": None}),
            _WINDOW_WIDE,
            _WINDOW_OFF_BY_ONE,
            Ablation(
                name="windows in the other layers",
                config={"layer_types": ["full_attention", "sliding_attention"] * 2},
            ),
            *_POST_NORMS,
        ],
    ),
    Case(
        name="gemma2-scale",
        llama_cpp=False,  # it knows the scale of each size by heart, whatever the file says
        num_tokens=300,
        config=gemma2_config(attn_logit_softcapping=50.0, query_pre_attn_scalar=64),
        ablations=[Ablation(name="scale of the head's size", config={"query_pre_attn_scalar": 32})],
    ),
    Case(
        name="gemma3",
        config=gemma3_config(
            num_hidden_layers=7,
            rope_local_base_freq=10_000.0,
            rope_scaling={"factor": 8.0, "rope_type": "linear"},
            rope_theta=1e6,
            sliding_window_pattern=6,
        ),
        ablations=[
            Ablation(name="rotation not scaled", config={"rope_scaling": None}, least=0.1),
            Ablation(name="global rotation everywhere", config={"rope_local_base_freq": 1e6}),
            Ablation(name="local rotation everywhere", config={"rope_theta": 1e4}, least=0.1),
            Ablation(name="no local layers", config={"sliding_window_pattern": 1}),
            _WINDOW_OFF_BY_ONE,
            *_QK_NORMS,
            *_POST_NORMS,
        ],
    ),
    Case(
        name="gemma3-layers",
        dtype="F32",
        config=gemma3_config(
            dtype="float32",
            head_dim=256,
            final_logit_softcapping=6.0,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            num_hidden_layers=4,
            query_pre_attn_scalar=256,
            rope_parameters={
                "full_attention": {"rope_theta": 200_000.0, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 5_000.0, "rope_type": "default"},
            },
        ),
        ablations=[
            Ablation(name="no cap on logits", config={"final_logit_softcapping": None}),
            Ablation(name="no local layers", config={"layer_types": ["full_attention"] * 4}),
        ],
    ),
    Case(
        name="llama-quantized",
        dtype="F32",
        sources=["gguf"],
        num_tokens=300,
        config=llama_config(
            head_dim=32,
            hidden_size=256,
            intermediate_size=256,
            num_attention_heads=8,
            rope_theta=10_000.0,
            tie_word_embeddings=False,
        ),
        types={
            "token_embd": "Q6_K",
            "output.": "Q5_K",
            "blk.0.attn_q.": "Q4_K",
            "blk.0.attn_k.": "Q5_K",
            "blk.0.attn_v.": "Q6_K",
            "blk.0.attn_output": "Q5_0",
            "blk.0.ffn_gate": "IQ4_NL",
            "blk.0.ffn_up": "Q8_0",
            "blk.0.ffn_down": "Q5_1",
            "blk.1.attn_q.": "Q5_0",
            "blk.1.attn_k.": "Q4_1",
            "blk.1.attn_v.": "Q4_0",
            "blk.1.attn_output": "Q4_K",
            "blk.1.ffn_gate": "Q5_K",
            "blk.1.ffn_up": "Q6_K",
            "blk.1.ffn_down": "IQ4_NL",
            "blk.2.attn_q.": "IQ4_NL",
            "blk.2.attn_k.": "Q6_K",
            "blk.2.attn_v.": "Q4_K",
            "blk.2.attn_output": "Q6_K",
            "blk.2.ffn_gate": "Q4_K",
            "blk.2.ffn_up": "Q5_K",
            "blk.2.ffn_down": "Q6_K",
        },
        ablations=[Ablation(name="other frequencies", config={"rope_theta": 20_000.0})],
    ),
    Case(
        name="qwen3moe-quantized",
        seed=11,
        dtype="F32",
        sources=["gguf"],
        num_tokens=300,
        config=qwen3moe_config(hidden_size=256, moe_intermediate_size=256, num_experts=4),
        types={
            "token_embd": "Q4_K",
            "output.": "Q6_K",
            "blk.0.ffn_gate_exps": "Q4_K",
            "blk.0.ffn_up_exps": "Q5_K",
            "blk.0.ffn_down_exps": "Q6_K",
            "blk.1.ffn_gate_exps": "Q5_0",
            "blk.1.ffn_up_exps": "IQ4_NL",
            "blk.1.ffn_down_exps": "Q8_0",
        },
        ablations=[Ablation(name="one expert", config={"num_experts_per_tok": 1})],
    ),
    Case(
        name="phi3-quantized",
        dtype="F32",
        sources=["gguf"],
        num_tokens=300,
        config=phi3_config(
            hidden_size=256, intermediate_size=256, num_attention_heads=8, num_key_value_heads=2
        ),
        types={
            "token_embd": "Q8_0",
            "output.": "Q6_K",
            "blk.0.attn_qkv": "Q5_K",
            "blk.0.attn_output": "Q4_K",
            "blk.0.ffn_up": "Q4_K",
            "blk.0.ffn_down": "Q6_K",
            "blk.1.attn_qkv": "Q4_0",
            "blk.1.ffn_up": "Q5_0",
            "blk.2.attn_qkv": "Q6_K",
            "blk.2.ffn_up": "IQ4_NL",
        },
        ablations=[Ablation(name="all dimensions rotate", config={"partial_rotary_factor": 1.0})],
    ),
)
