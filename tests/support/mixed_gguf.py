"""A tiny GGUF file whose matrices are of many storage types, as quantised files are, and how to load it."""

from pathlib import Path
from typing import Any

from headway import _native
from headway.core.config import EngineConfig
from headway.core.plan import ModelPlan, TensorType
from headway.models.architectures import open_plan
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from headway.runner.packing import pack_tensors
from support.tiny_gguf import write_tiny_gguf

MIXED_TYPES = {
    "token_embd": TensorType.Q6_K,
    "attn_q": TensorType.Q4_K,
    "attn_k": TensorType.Q4_0,
    "attn_v": TensorType.Q4_1,
    "attn_output": TensorType.IQ4_NL,
    "ffn_gate": TensorType.Q8_0,
    "ffn_up": TensorType.Q5_K,
    "ffn_down": TensorType.F16,
}


def write_mixed_gguf(path: Path) -> ModelPlan:
    """Write the file and return its plan."""
    write_tiny_gguf(path, types=MIXED_TYPES, hidden=256, heads=16, ffn=256)
    return open_plan(path)


def load_with_model(plan: ModelPlan, **changes: Any) -> tuple[_native.Model, NativeRunner]:
    """Load the plan with these fields of the configuration; return the native model, too."""
    models: list[_native.Model] = []

    def pack(model: _native.Model, plan: ModelPlan) -> str:
        models.append(model)
        return pack_tensors(model, plan)

    fields: dict[str, Any] = {"model": "mixed", "threads": 1, "kv_bytes": 1 << 22} | changes
    runner = load_runner(plan, EngineConfig(**fields), pack)
    return models[0], runner
