"""Settings, parsed once and frozen. Unknown keys are errors; "auto" is resolved to a value that is logged."""

from typing import Literal

import msgspec

WeightFormat = Literal["auto", "bf16", "int8", "int4", "nf4"]
ActivationFormat = Literal["f32", "bf16"]
KvFormat = Literal["bf16", "int8"]
InstructionSet = Literal["auto", "portable", "avx2", "avx512", "avx512bf16"]
PolicyName = Literal["slo", "fcfs", "shortest", "bucketed"]


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a step and of the queue."""

    policy: PolicyName = "slo"
    """Who goes first. Only "slo" knows deadlines, shares and tenants, and refuses what would come too late."""
    max_num_seqs: int = 64
    """Most sequences that run at once (each choice counts)."""
    max_prefill_tokens: int = 256
    """Most prompt tokens one step carries, over all sequences; fewer where the inter-token target asks for it."""
    itl_target_s: float | None = 0.05
    """What a step may take while anything runs, as far as prompts can be cut; None = only `max_prefill_tokens` counts."""
    prefix_cache: bool = True
    """Whether prompts start from what is cached of them."""
    high_ttft_s: float = 5.0
    normal_ttft_s: float = 60.0
    low_ttft_s: float = 600.0
    """When the first token is due, by class, where a request does not say: wide, as who does not say would rather wait."""
    class_shares: tuple[int, int, int] = (50, 30, 20)
    """Percent of the tokens for high, normal and low while all three have work waiting."""
    lend_high: Literal["idle", "never"] = "idle"
    """Whether others may have what high leaves: "never" keeps it free for the next one that is high."""
    max_draft_tokens: int = 8
    """Most tokens a sequence drafts per step for speculation; 0 = no speculation. It changes no answer."""
    session_idle_s: float = 900.0
    """How long a conversation whose requests have all ended keeps its place in the KV cache before others."""
    max_queued_requests: int = 1024
    """Most of a class that wait to run for the first time (each choice counts)."""
    max_queued_tokens: int = 4_000_000
    """Most prompt tokens of those (of each choice), by class too."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one model is run."""

    model: str
    """The name under which it is served; a label here."""
    model_path: str = ""
    """The model: a GGUF file, the first of its shards, or a Hugging Face folder."""
    weights: WeightFormat = "auto"
    """"auto" keeps what the file has: bf16 for floats, 4 bits as they are, int8 for all between."""
    group_size: Literal[32, 64, 128] | None = None
    """Weights and activations per scale; None = 32. Weights of 4 bits have no other."""
    activations: ActivationFormat = "f32"
    """What bf16 weights are multiplied with: bf16 is faster where the instruction set has such products, f32 closer."""
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
    host_kv_bytes: int = 0
    """Memory for KV blocks that must leave the cache. 0 = none: on a CPU the cache itself makes better use of memory."""
    disk_kv_path: str | None = None
    """A folder for KV blocks that must leave the cache, and memory; None = none."""
    disk_kv_bytes: int = 4 << 30
    """Most that folder may hold."""
    scheduler: SchedulerConfig = SchedulerConfig()
