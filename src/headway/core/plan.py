"""What a model file holds, as a plan: sizes, constants, and where each tensor lies. Read by `models`, run by `runner`.

It knows no file format: a GGUF file and a folder of safetensors yield the same plan.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal


class TensorType(IntEnum):
    """Storage types of tensor data, numbered as in GGUF (ggml's enumeration)."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ4_NL = 20
    BF16 = 30


Role = Literal[
    "token_embedding",  # (vocab_size, hidden_size)
    "output_norm",  # (hidden_size,)
    "output",  # (vocab_size, hidden_size); absent when tied to token_embedding
    "attention_norm",  # (hidden_size,)
    "query",  # (num_heads * head_dim, hidden_size)
    "key",  # (num_kv_heads * head_dim, hidden_size)
    "value",  # (num_kv_heads * head_dim, hidden_size)
    "attention_output",  # (hidden_size, num_heads * head_dim)
    "ffn_norm",  # (hidden_size,)
    "ffn_gate",  # (ffn_size, hidden_size)
    "ffn_up",  # (ffn_size, hidden_size)
    "ffn_down",  # (hidden_size, ffn_size)
    "rope_factors",  # (head_dim / 2,), divides the rotation frequencies; optional
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor's place: `num_bytes` bytes at `offset` of the file, row-major, `columns` the contiguous dimension.

    A vector has rows == 1. `layer` is None for tensors outside the layers.
    """

    role: Role
    layer: int | None
    type: TensorType
    rows: int
    columns: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes and constants of a decoder: RMS norm, rotary positions, grouped-query attention, SwiGLU."""

    architecture: str
    vocab_size: int
    max_context: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    norm_epsilon: float
    rope_theta: float
    rope_dim: int
    """How many of a head's dimensions rotate; the rest pass through."""
    rope_interleaved: bool
    """True: pairs (2i, 2i+1) rotate, as GGUF stores llama; False: pairs (i, i + rope_dim/2)."""
    tied_embeddings: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """Everything the runner needs to load a model."""

    path: Path
    file_sha256: str | None
    """Known digest of the file, if any; goes into the system fingerprint."""
    shape: ModelShape
    tensors: tuple[TensorRef, ...]
