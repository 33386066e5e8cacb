"""The tiny checkpoints as tests use them: written in either form, and what `transformers` computed for them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from support.checkpoint_case import Case, Config
from support.checkpoint_cases import CASES
from support.checkpoint_folder import write_folder
from support.checkpoint_gguf import write_checkpoint_gguf
from support.checkpoint_weights import F32Array, make_weights

_DATA: Final = Path(__file__).parents[1] / "data" / "architectures"

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_source = pytest.mark.parametrize(
    ("case", "source"),
    [(case, source) for case in CASES for source in case.sources],
    ids=lambda value: value if isinstance(value, str) else value.name,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What `transformers` computes in float32: logits (num_positions, vocab_size) of one sequence of tokens."""

    tokens: Sequence[int]
    positions: Sequence[int]
    logits: F32Array
    weights: float
    """Checksum of the weights that it was given."""
    ablations: Mapping[str, float]
    """How far each ablation moves the logits, relative to their norm."""
    saved_config: Config | None
    """The configuration as `transformers` itself writes it into a folder."""


def case_named(name: str) -> Case:
    """Return the case of that name."""
    return next(case for case in CASES if case.name == name)


def reference(case: Case) -> Reference:
    """Return what is stored for `case`."""
    return Reference(logits=np.load(_DATA / f"{case.name}.npy"), **_manifest()["cases"][case.name])


def write_checkpoint(folder: Path, case: Case, source: str, *, config: Config | None = None) -> Path:
    """Write `case` into `folder` as "folder", with `config` instead of its own if given, or "gguf"; return the path."""
    if source == "folder":
        return write_folder(folder / "model", case, _weights(case.name), config=config)
    return write_checkpoint_gguf(folder / "model.gguf", case, _weights(case.name))


def relative_error(values: F32Array, expected: F32Array) -> float:
    """Return the norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


@cache
def _manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_DATA / "manifest.json").read_text())
    return loaded


@cache
def _weights(name: str) -> dict[str, F32Array]:
    return make_weights(case_named(name))
