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
    "query_bias",  # (num_heads * head_dim,), with qkv_bias
    "key_bias",  # (num_kv_heads * head_dim,), with qkv_bias
    "value_bias",  # (num_kv_heads * head_dim,), with qkv_bias
    "query_norm",  # (head_dim,), with qk_norm
    "key_norm",  # (head_dim,), with qk_norm
    "attention_output",  # (hidden_size, num_heads * head_dim)
    "attention_post_norm",  # (hidden_size,), with post_norms
    "ffn_norm",  # (hidden_size,)
    "router",  # (num_experts, hidden_size), with experts
    "ffn_gate",  # (ffn_size, hidden_size), of each expert
    "ffn_up",  # (ffn_size, hidden_size), of each expert
    "ffn_down",  # (hidden_size, ffn_size), of each expert
    "ffn_post_norm",  # (hidden_size,), with post_norms
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor's place, or that of some rows of it: `num_bytes` bytes at `offset` of `ModelPlan.files[file]`.

    Row-major, `columns` the contiguous dimension. Fused projections and stacked experts are several references into one
    tensor of the file.
    """

    role: Role
    layer: int | None
    """None for tensors outside the layers."""
    expert: int | None = None
    """Which expert's feed-forward network, in a model that has experts."""
    type: TensorType
    rows: int
    """1 for a vector."""
    columns: int
    file: int = 0
    offset: int
    num_bytes: int
    add: float = 0.0
    """Added to every value of a vector as it is loaded: some files hold norm weights less 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """One way to rotate queries and keys; every method of scaling ends up here (Su et al., arXiv 2104.09864)."""

    dim: int
    """How many of a head's dimensions rotate; the rest pass through."""
    interleaved: bool
    """True: pairs (2i, 2i+1) rotate, as GGUF stores llama; False: pairs (i, i + dim/2)."""
    frequencies: tuple[float, ...]
    """(dim/2,) radians per position: computed in double precision, each exactly a float32 value."""
    scale: float = 1.0
    """Cosines and sines are multiplied by it: the attention factor of YaRN and LongRoPE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """How one layer attends."""

    rope: int = 0
    """Index into `ModelShape.ropes`."""
    window: int | None = None
    """A position sees itself and the `window` - 1 before it; None = all before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongContext:
    """What to rotate by, at every position, when the configured context exceeds `original_context` (arXiv 2402.13753)."""

    original_context: int
    ropes: tuple[Rope, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes and constants of a decoder: RMS norm, rotary positions, grouped-query attention, gated feed-forward."""

    architecture: str
    vocab_size: int
    max_context: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    """Of one expert when there are experts."""
    norm_epsilon: float
    tied_embeddings: bool
    ropes: tuple[Rope, ...]
    layers: tuple[LayerShape, ...]
    """(num_layers,)"""
    long_context: LongContext | None = None
    activation: Literal["silu", "gelu_tanh"] = "silu"
    """Of the feed-forward network: down(activation(gate(x)) * up(x))."""
    attention_scale: float | None = None
    """Of query . key; None = 1 / sqrt(head_dim)."""
    attention_softcap: float | None = None
    """c: a score becomes c * tanh(score / c), before the mask."""
    logit_softcap: float | None = None
    """The same for logits."""
    embedding_scale: float = 1.0
    """Token embeddings are multiplied by it, in float32."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """RMS norm of each head of query and key, before the rotation."""
    post_norms: bool = False
    """RMS norm of what attention and feed-forward network give, before it is added to the residual stream."""
    num_experts: int = 0
    """0 = one dense feed-forward network."""
    num_experts_per_token: int = 0
    normalize_experts: bool = True
    """Weights of the chosen experts (softmax over all) are divided by their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """Everything the runner needs to load a model."""

    path: Path
    """What the user named: a file or a folder."""
    files: tuple[Path, ...]
    """Where tensors lie, shards in order."""
    file_sha256: str | None
    """Known digest of the file, if any; goes into the system fingerprint."""
    shape: ModelShape
    tensors: tuple[TensorRef, ...]
