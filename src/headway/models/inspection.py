"""All that `headway inspect` tells of a model but its memory: what it says, what it is, whether it can be run.

Headers and the tokenizer are read. What we refuse to run is told all the same, with the reason.
"""

from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import ModelFileError
from headway.core.plan import ModelShape
from headway.models.architectures import open_plan
from headway.models.summary import ModelSummary, summarise
from headway.models.text_side import TextSide, open_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A model. `shape` and `text` are None where we cannot read them exactly; `problems` says why, one sentence each."""

    path: Path
    summary: ModelSummary
    shape: ModelShape | None
    text: TextSide | None
    problems: tuple[str, ...]


def inspect_model(path: Path) -> Inspection:
    """Inspect the model file or folder at `path`; raises ModelFileError, one line, if it is no valid model."""
    summary = summarise(path)
    problems: list[str] = []
    shape: ModelShape | None = None
    text: TextSide | None = None
    try:
        shape = open_plan(path).shape
    except ModelFileError as error:
        problems.append(error.message)
    try:
        text = open_text(path)
    except ModelFileError as error:
        problems.append(error.message)
    return Inspection(path=path, summary=summary, shape=shape, text=text, problems=tuple(problems))
