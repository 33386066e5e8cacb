"""Settings, parsed once and frozen. Unknown keys are errors; "auto" is resolved to a value that is logged."""

from typing import Literal

import msgspec

WeightFormat = Literal["auto", "bf16", "int8", "int4", "nf4"]
KvFormat = Literal["bf16", "int8"]
InstructionSet = Literal["auto", "portable", "avx2", "avx512", "avx512bf16"]


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a step and of the queue."""

    max_num_seqs: int = 64
    """Most sequences that run at once (each choice counts)."""
    max_prefill_tokens: int = 256
    """Most prompt tokens one step carries, over all sequences: what bounds the stall of running streams."""
    max_queued_requests: int = 1024
    """Most that wait to run for the first time (each choice counts)."""
    max_queued_tokens: int = 4_000_000
    """Most prompt tokens of those (of each choice)."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one model is run."""

    model: str
    """The name under which it is served; a label here."""
    model_path: str = ""
    """The model: a GGUF file, the first of its shards, or a Hugging Face folder."""
    weights: WeightFormat = "int8"
    group_size: Literal[32, 64, 128] | None = None
    """Weights and activations per scale; None = 32. Weights of 4 bits have no other."""
    kv: KvFormat = "bf16"
    isa: InstructionSet = "auto"
    threads: int | None = None
    """None = the CPUs this process may use."""
    kv_bytes: int | None = None
    """Memory for the KV cache; None = auto."""
    block_size: int = 16
    """Tokens in a block of the KV cache, a multiple of 16 up to the context: memory is given out and shared by blocks."""
    max_context: int | None = None
    """None = what the model was trained for, or less where the KV cache has no room for that; logged."""
    scheduler: SchedulerConfig = SchedulerConfig()
