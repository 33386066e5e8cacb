"""From a model file to a plan: the architectures we can run, by the name their files carry.

It knows how to choose a reader, not how any architecture works, and reads only a file's header.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from headway.core.errors import ModelFileError
from headway.core.plan import ModelPlan
from headway.models.gguf import GgufFile, read_gguf
from headway.models.llama import plan_llama

ARCHITECTURES: Mapping[str, Callable[[GgufFile, str | None], ModelPlan]] = MappingProxyType(
    {
        "llama": plan_llama,
    }
)


def open_model(path: Path, file_sha256: str | None = None) -> tuple[GgufFile, ModelPlan]:
    """Read the header of the model file at `path` and plan it; takes milliseconds, whatever the file's size.

    `file_sha256` is the file's digest where the caller knows it (`headway.models.sources.known_sha256`).
    Raises ModelFileError if the file is invalid or needs something that we cannot compute exactly.
    """
    file = read_gguf(path)
    architecture = file.text("general.architecture")
    plan = ARCHITECTURES.get(architecture)
    if plan is None:
        supported = ", ".join(ARCHITECTURES)
        raise ModelFileError(
            f"{path}: the architecture {architecture[:40]!r} is not supported (supported: {supported})."
        )
    return file, plan(file, file_sha256)
