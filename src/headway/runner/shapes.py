"""Models that have a name but no file: the shapes of some that many people run, to be filled with random weights.

Sizes are those of the models' public config.json. Rotations are the plain ones of their base, without the scaling of long
contexts: which angles are turned by costs the same time.
"""

import math
from array import array
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headway.core.errors import ConfigError
from headway.core.plan import LayerShape, ModelShape, Rope


def find_shape(name: str) -> ModelShape:
    """Return the shape called `name` (without the prefix); raises ConfigError, naming all, if there is none."""
    shape = SHAPES.get(name)
    if shape is None:
        raise ConfigError(f"There is no shape {name!r}; there are {', '.join(SHAPES)}.")
    return shape


def is_shape(name: str) -> bool:
    """Return whether there is a shape called `name` (without the prefix)."""
    return name in SHAPES


def _rope(dim: int, theta: float) -> Rope:
    frequencies = array("f", [theta ** (-i / dim) for i in range(0, dim, 2)])  # rounded to float32
    return Rope(dim=dim, interleaved=False, frequencies=tuple(frequencies))


def _shape(
    architecture: str,
    *,
    layers: int,
    hidden: int,
    heads: tuple[int, int, int],
    ffn: int,
    vocab: int,
    context: int,
    tied: bool,
    theta: float,
    kinds: tuple[LayerShape, ...] = (LayerShape(),),
    **changes: Any,
) -> ModelShape:
    """Return a shape; `heads` are (heads, KV heads, head_dim), `kinds` repeat, `changes` are further fields."""
    fields: dict[str, Any] = {
        "norm_epsilon": 1e-5,
        "ropes": (_rope(heads[2], theta),),
        **changes,
    }
    return ModelShape(
        architecture=architecture,
        vocab_size=vocab,
        max_context=context,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=heads[2],
        ffn_size=ffn,
        tied_embeddings=tied,
        layers=tuple(kinds[layer % len(kinds)] for layer in range(layers)),
        **fields,
    )


def _qwen2(layers: int, hidden: int, heads: tuple[int, int, int], ffn: int, *, tied: bool) -> ModelShape:
    return _shape(
        "qwen2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=151_936 if tied else 152_064,
        context=32_768,
        tied=tied,
        theta=1e6,
        norm_epsilon=1e-6,
        qkv_bias=True,
    )


def _qwen3(layers: int, hidden: int, heads: tuple[int, int, int], ffn: int, **changes: Any) -> ModelShape:
    fields: dict[str, Any] = {"tied": True, "norm_epsilon": 1e-6, "qk_norm": True, **changes}
    return _shape(
        "qwen3",
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=151_936,
        context=40_960,
        theta=1e6,
        **fields,
    )


def _gemma3(layers: int, hidden: int, heads: tuple[int, int, int], ffn: int, *, window: int) -> ModelShape:
    return _shape(
        "gemma3",
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=262_144,
        context=32_768,
        tied=True,
        theta=1e6,
        kinds=(*(LayerShape(rope=1, window=window),) * 5, LayerShape()),
        norm_epsilon=1e-6,
        ropes=(_rope(heads[2], 1e6), _rope(heads[2], 1e4)),
        activation="gelu_tanh",
        embedding_scale=array("f", [math.sqrt(hidden)])[0],
        qk_norm=True,
        post_norms=True,
    )


_LLAMA_3: Mapping[str, Any] = {"vocab": 128_256, "theta": 5e5}

SHAPES: Mapping[str, ModelShape] = MappingProxyType(
    {
        "smollm2-135m": _shape(
            "llama",
            layers=30,
            hidden=576,
            heads=(9, 3, 64),
            ffn=1536,
            vocab=49_152,
            context=8192,
            tied=True,
            theta=1e5,
        ),
        "llama-1.4b": _shape(  # no model's, but the one that our comparisons use
            "llama",
            layers=28,
            hidden=1536,
            heads=(12, 2, 128),
            ffn=8960,
            vocab=49_152,
            context=32_768,
            tied=True,
            theta=1e6,
        ),
        "llama-3.2-1b": _shape(
            "llama",
            layers=16,
            hidden=2048,
            heads=(32, 8, 64),
            ffn=8192,
            context=131_072,
            tied=True,
            **_LLAMA_3,
        ),
        "llama-3.2-3b": _shape(
            "llama",
            layers=28,
            hidden=3072,
            heads=(24, 8, 128),
            ffn=8192,
            context=131_072,
            tied=True,
            **_LLAMA_3,
        ),
        "llama-3-8b": _shape(
            "llama",
            layers=32,
            hidden=4096,
            heads=(32, 8, 128),
            ffn=14_336,
            context=8192,
            tied=False,
            **_LLAMA_3,
        ),
        "mistral-7b": _shape(  # v0.3
            "mistral",
            layers=32,
            hidden=4096,
            heads=(32, 8, 128),
            ffn=14_336,
            vocab=32_768,
            context=32_768,
            tied=False,
            theta=1e6,
        ),
        "phi-3-mini": _shape(  # 4k
            "phi3",
            layers=32,
            hidden=3072,
            heads=(32, 32, 96),
            ffn=8192,
            vocab=32_064,
            context=4096,
            tied=False,
            theta=1e4,
            kinds=(LayerShape(window=2047),),
        ),
        "qwen2.5-coder-0.5b": _qwen2(24, 896, (14, 2, 64), 4864, tied=True),
        "qwen2.5-coder-1.5b": _qwen2(28, 1536, (12, 2, 128), 8960, tied=True),
        "qwen2.5-coder-3b": _qwen2(36, 2048, (16, 2, 128), 11_008, tied=True),
        "qwen2.5-coder-7b": _qwen2(28, 3584, (28, 4, 128), 18_944, tied=False),
        "qwen2.5-7b": _qwen2(28, 3584, (28, 4, 128), 18_944, tied=False),
        "qwen2.5-coder-14b": _qwen2(48, 5120, (40, 8, 128), 13_824, tied=False),
        "qwen3-4b": _qwen3(36, 2560, (32, 8, 128), 9728),
        "qwen3-8b": _qwen3(36, 4096, (32, 8, 128), 12_288, tied=False),
        "qwen3-30b-a3b": _qwen3(
            48, 2048, (32, 4, 128), 768, tied=False, num_experts=128, num_experts_per_token=8
        ),
        "gemma-3-1b": _gemma3(26, 1152, (4, 1, 256), 6912, window=512),
    }
)
