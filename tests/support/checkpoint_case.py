"""What a tiny random model is that stands for an architecture: its configuration, and how it is stored and compared.

An ablation changes what a feature is or switches it off; scripts/make_architecture_references.py checks that the logits
then change by far more than the tolerance of the test, so that a case proves what it is for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Config = Mapping[str, Any]

VOCAB_SIZE: Final = 297
NUM_TOKENS: Final = 600
"""Crosses two borders between spans of 256 positions."""
WINDOW: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """One feature changed: keys of the configuration replaced, tensors with these endings filled with a value."""

    name: str
    config: Config = field(default_factory=dict)
    fill: Mapping[str, float] = field(default_factory=dict)
    least: float = 0.15
    """How far the logits have to move, as a relative error: three times what int8 may be off, or, where few of the
    positions or layers are concerned, at least more than bf16 may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model: its configuration, how its weights are stored, and at which of its tokens logits are compared."""

    name: str
    config: Config
    ablations: Sequence[Ablation]
    seed: int = 1
    dtype: Literal["F32", "F16", "BF16"] = "BF16"
    num_shards: int = 1
    """Files of the folder; more than one come with an index."""
    num_tokens: int = NUM_TOKENS
    max_context: int | None = None
    """What the runner is configured for; None = the model's own."""
    sources: Sequence[Literal["folder", "gguf"]] = ("folder", "gguf")
    types: Mapping[str, str] = field(default_factory=dict)
    """By beginnings of tensor names in the GGUF file, what is stored as another type than `dtype`."""
    llama_cpp: bool = True
    """Whether llama.cpp computes the GGUF file as `transformers` does the folder."""

    @property
    def positions(self) -> list[int]:
        """Up to twelve positions: the first, around the window and the border of a span, in the scaled part, the last."""
        wanted = (0, 17, WINDOW - 1, WINDOW, WINDOW + 1, 127, 255, 256, 300, 430, 512)
        return [*(position for position in wanted if position < self.num_tokens - 1), self.num_tokens - 1]
