"""What is compared: the table of the project's targets, one case a row, and which settings of a peer are tried for it.

Peers run in their best configuration, found anew on each machine by `sweep`: `SETTINGS` has, for each peer and kind of
work, what may be set and to what, the first value being the peer's default.
"""

from dataclasses import dataclass
from typing import Any, Literal

from peers.places import LLAMA_CPP, OPENVINO

Settings = dict[str, Any]
Axes = dict[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Prefill:
    """One prompt of `tokens`, nothing cached, up to its first token."""

    tokens: int

    @property
    def command(self) -> dict[str, Any]:
        """The driver's command."""
        return {"op": "prefill", "tokens": self.tokens}

    @property
    def num_tokens(self) -> int:
        """Tokens that the seconds are for."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Decode:
    """`tokens` steps of `batch` sequences that begin with `context` tokens each."""

    batch: int
    context: int
    tokens: int

    @property
    def command(self) -> dict[str, Any]:
        """The driver's command."""
        return {"op": "decode", "batch": self.batch, "context": self.context, "tokens": self.tokens}

    @property
    def num_tokens(self) -> int:
        """Tokens that the seconds are for: those of all sequences."""
        return self.batch * self.tokens


@dataclass(frozen=True, slots=True)
class Target:
    """What Headway's speed over a peer's should be; `BETTER` is whichever peer is faster."""

    peer: str
    at_least: float
    aim: float


BETTER = "better peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. `model` is a storage type of the 1.4 B shape, or smollm2; `swept_by` the case that finds the settings."""

    name: str
    title: str
    model: str
    work: Prefill | Decode
    weights: str
    kv: Literal["bf16", "int8"] = "bf16"
    targets: tuple[Target, ...]
    swept_by: str | None = None
    most_repeats: int | None = None
    """For a case that takes minutes."""


CASES = (
    Case(
        name="prefill-512",
        title="prefill, 512 tokens, int8 (Q8_0)",
        model="q8_0",
        work=Prefill(512),
        weights="int8",
        targets=(Target(OPENVINO, 1.15, 1.4), Target(LLAMA_CPP, 2.5, 3.5)),
    ),
    Case(
        name="prefill-2048",
        title="prefill, 2,048 tokens, int8 (Q8_0)",
        model="q8_0",
        work=Prefill(2048),
        weights="int8",
        targets=(Target(OPENVINO, 1.15, 1.4), Target(LLAMA_CPP, 2.5, 3.5)),
        swept_by="prefill-512",
        most_repeats=3,
    ),
    Case(
        name="decode-1",
        title="decode, 1 sequence, int8 (Q8_0)",
        model="q8_0",
        work=Decode(batch=1, context=64, tokens=32),
        weights="int8",
        targets=(Target(LLAMA_CPP, 1.05, 1.15),),
    ),
    Case(
        name="decode-1-int4",
        title="decode, 1 sequence, int4 (Q4_0)",
        model="q4_0",
        work=Decode(batch=1, context=64, tokens=32),
        weights="int4",
        targets=(Target(LLAMA_CPP, 1.05, 1.15),),
        swept_by="decode-1",
    ),
    Case(
        name="decode-8",
        title="decode, 8 sequences, int8 (Q8_0)",
        model="q8_0",
        work=Decode(batch=8, context=64, tokens=16),
        weights="int8",
        targets=(Target(BETTER, 1.5, 2.2),),
    ),
    Case(
        name="decode-32",
        title="decode, 32 sequences, int8 (Q8_0)",
        model="q8_0",
        work=Decode(batch=32, context=64, tokens=8),
        weights="int8",
        targets=(Target(BETTER, 1.5, 2.2),),
        swept_by="decode-8",
    ),
    Case(
        name="decode-4000",
        title="decode, 1 sequence, 4,000 tokens of context, int8 (Q8_0), int8 KV",
        model="q8_0",
        work=Decode(batch=1, context=4000, tokens=16),
        weights="int8",
        kv="int8",
        targets=(Target(LLAMA_CPP, 1.2, 1.6),),
    ),
    Case(
        name="smollm2-prefill-512",
        title="SmolLM2-135M (Q4_1), prefill, 512 tokens",
        model="smollm2",
        work=Prefill(512),
        weights="auto",
        targets=(Target(OPENVINO, 1.0, 1.4),),
    ),
    Case(
        name="smollm2-decode-1",
        title="SmolLM2-135M (Q4_1), decode, 1 sequence",
        model="smollm2",
        work=Decode(batch=1, context=64, tokens=64),
        weights="auto",
        targets=(Target(LLAMA_CPP, 1.4, 2.0),),
    ),
)


def find_cases(names: str | None) -> tuple[Case, ...]:
    """Return the named cases (separated by commas) in the table's order, or all; raises ValueError for an unknown name."""
    if names is None:
        return CASES
    wanted = set(names.split(","))
    if unknown := wanted - {case.name for case in CASES}:
        raise ValueError(
            f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CASES)}"
        )
    return tuple(case for case in CASES if case.name in wanted)


def settings_axes(case: Case, peer: str) -> Axes:
    """Return what may be set for a peer, each with its values; one value means that it is fixed."""
    prefill = isinstance(case.work, Prefill)
    if peer == OPENVINO:
        return {
            "prefix_cache": (not prefill,),
            "INFERENCE_PRECISION_HINT": (None, "f32", "bf16"),
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": (None, 32, 64, 0),
            # Fixed where int8 is what is compared.
            "KV_CACHE_PRECISION": ("u8",) if case.kv == "int8" else (None, "u8", "bf16"),
        }
    return {
        # A quantised KV cache needs flash attention there.
        "flash_attention": (True,) if case.kv == "int8" else (True, False),
        "ubatch": (512, 256, 128, 64) if prefill else (512,),
        "repack": (True, False),
        "kv": ("q8_0",) if case.kv == "int8" else ("f16", "q8_0", "bf16"),
    }
