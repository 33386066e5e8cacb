"""All that `headway inspect` tells of a model: what it says, what it is, whether it can be run, the memory it would take.

Headers and the tokenizer are read, no weights. What we refuse to run is told all the same, with the reason.
"""

from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import ModelFileError
from headway.core.plan import ModelShape
from headway.models.architectures import open_plan
from headway.models.summary import ModelSummary, summarise
from headway.models.text_side import TextSide, open_text
from headway.runner.estimate import MemoryNeeds, memory_needs
from headway.runner.formats import GroupSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A model. `shape`, `text` and `needs` are None where it cannot be run; `problems` says why, one sentence each."""

    path: Path
    summary: ModelSummary
    shape: ModelShape | None
    text: TextSide | None
    needs: MemoryNeeds | None
    problems: tuple[str, ...]
    available_bytes: int
    """Memory of this machine that is free."""

    @property
    def context(self) -> int | None:
        """The longest context in tokens."""
        return self.shape.max_context if self.shape else self.summary.context


def inspect_model(path: Path, *, group_size: GroupSize | None, available_bytes: int) -> Inspection:
    """Inspect the model file or folder at `path`; raises ModelFileError, one line, if it is no valid model."""
    summary = summarise(path)
    problems: list[str] = []
    shape: ModelShape | None = None
    text: TextSide | None = None
    needs: MemoryNeeds | None = None
    try:
        plan = open_plan(path)
        shape = plan.shape
        needs = memory_needs(shape, group_size=group_size, tensors=plan.tensors)
    except ModelFileError as error:
        problems.append(error.message)
    try:
        text = open_text(path)
    except ModelFileError as error:
        problems.append(error.message)
    return Inspection(
        path=path,
        summary=summary,
        shape=shape,
        text=text,
        needs=needs,
        problems=tuple(problems),
        available_bytes=available_bytes,
    )
