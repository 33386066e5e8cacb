"""Write tests/data/rope.json: the frequencies that `transformers` rotates queries and keys by, for every way of scaling.

Each case is a configuration as it stands in a model's config.json (sizes and parameters of published models, heads of
16 to 64 dimensions to keep the file small). The numbers are those that the model's own rotary embedding holds, in float32,
which nine digits tell exactly.

In the environment that scripts/make_accuracy_references.py describes:

    venv-reference/bin/python scripts/make_rope_references.py
"""

import json
import math
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]
from transformers import AutoConfig, AutoModel

OUTPUT = Path(__file__).parents[1] / "tests" / "data" / "rope.json"

_SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1}
_SIZES |= {"bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 2, "pad_token_id": 2, "vocab_size": 8}
_LLAMA3 = {"high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 32_768}
_LONG = {
    "long_factor": [round(1.05**index + index * index / 40, 4) for index in range(24)],
    "short_factor": [round(1 + index / 30, 4) for index in range(24)],
}


def _case(model_type: str, max_context: int, **values: Any) -> dict[str, Any]:
    return {"model_type": model_type, "max_position_embeddings": max_context, **_SIZES, **values}


def _llama(max_context: int, **values: Any) -> dict[str, Any]:
    return _case("llama", max_context, **values)


def _qwen2(**scaling: Any) -> dict[str, Any]:
    return _case("qwen2", 131_072, rope_theta=1e6, rope_scaling={"type": "yarn", **_YARN, **scaling})


def _phi3(**scaling: Any) -> dict[str, Any]:
    return _case(
        "phi3",
        131_072,
        original_max_position_embeddings=4096,
        partial_rotary_factor=0.75,
        rope_scaling={"type": "longrope", **_LONG, **scaling},
        rope_theta=10_000.0,
    )


CASES: dict[str, dict[str, Any]] = {
    "default": _llama(4096),
    "default of llama 3": _llama(8192, rope_theta=500_000.0),
    "default of 5.x": _llama(8192, rope_parameters={"rope_theta": 50_000.0, "rope_type": "default"}),
    "linear": _llama(16_384, rope_scaling={"factor": 4.0, "type": "linear"}, rope_theta=100_000),
    "dynamic": _llama(4096, rope_scaling={"factor": 2.0, "type": "dynamic"}),
    "llama 3.1": _llama(
        131_072, rope_scaling={"factor": 8.0, "rope_type": "llama3", **_LLAMA3}, rope_theta=500_000.0
    ),
    "llama 3.2": _llama(
        131_072, rope_parameters={"factor": 32.0, "rope_type": "llama3", "rope_theta": 5e5, **_LLAMA3}
    ),
    "yarn": _qwen2(),
    "yarn without rounding": _qwen2(truncate=False),
    "yarn with other betas": _qwen2(beta_fast=16, beta_slow=2),
    "yarn with attention factor": _qwen2(attention_factor=1.5),
    "yarn with mscale": _qwen2(factor=40, mscale=0.707, mscale_all_dim=1.0),
    "yarn with a factor of the contexts": _qwen2(factor=None),
    "yarn of a short context": _qwen2(original_max_position_embeddings=8),
    "longrope": _phi3(),
    "longrope with attention factor": _phi3(attention_factor=1.25),
    "longrope with factor": _phi3(factor=16.0),
    "longrope of phi3's first name": _phi3(type="su", original_max_position_embeddings=4096),
    "gemma3": _case(
        "gemma3_text",
        131_072,
        head_dim=32,
        rope_local_base_freq=10_000.0,
        rope_scaling={"factor": 8.0, "rope_type": "linear"},
        rope_theta=1e6,
        sliding_window_pattern=2,
    ),
    "gemma3 of 5.x": _case(
        "gemma3_text",
        131_072,
        head_dim=32,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"factor": 8.0, "rope_theta": 1e6, "rope_type": "linear"},
            "sliding_attention": {"rope_theta": 20_000.0, "rope_type": "default"},
        },
    ),
}


def rotations(config: dict[str, Any]) -> dict[str, Any]:
    """Return frequencies and scale of each rotation, those of global layers first, and what replaces them in long texts."""
    values = {key: value for key, value in config.items() if key != "model_type"}
    model = AutoModel.from_config(
        AutoConfig.for_model(config["model_type"], **json.loads(json.dumps(values)))
    )
    rotary = model.rotary_emb
    prefixes = ["full_attention_", "sliding_attention_"] if config["model_type"] == "gemma3_text" else [""]
    found = [
        {
            "frequencies": _numbers(getattr(rotary, f"{prefix}inv_freq")),
            "scale": getattr(rotary, f"{prefix}attention_scaling"),
        }
        for prefix in prefixes
    ]
    if "longrope" not in str(config.get("rope_scaling")) and "'su'" not in str(config.get("rope_scaling")):
        return {"config": config, "ropes": found}
    rotary(torch.zeros(1), torch.arange(config["original_max_position_embeddings"] + 1)[None])
    return {"config": config, "ropes": found, "long": _numbers(rotary.inv_freq)}


def _numbers(tensor: Any) -> list[float]:
    return [float(f"{value:.9g}") for value in tensor.tolist()]


def main() -> None:
    """Write the file."""
    cases = {name: rotations(config) for name, config in CASES.items()}
    assert all(math.isfinite(rope["scale"]) for case in cases.values() for rope in case["ropes"])
    written = {
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__},
        "cases": cases,
    }
    OUTPUT.write_text(json.dumps(written, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
