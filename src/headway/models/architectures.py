"""From a model's path to its plan, whatever the model comes as: a GGUF file, the first of its shards, or a folder.

It knows how to choose a reader, not how any architecture works (`architecture_table`), and reads only headers.
"""

from pathlib import Path

from headway.core.plan import ModelPlan
from headway.models.gguf_plan import plan_gguf
from headway.models.gguf_shards import read_gguf_model
from headway.models.hf_plan import plan_folder
from headway.models.model_folder import is_folder


def open_plan(path: Path, file_sha256: str | None = None) -> ModelPlan:
    """Plan the model at `path`; takes milliseconds, whatever its size.

    `file_sha256` is the digest of a model's only file where the caller knows it (`headway.models.sources.known_sha256`).
    Raises ModelFileError, one sentence, if a file is invalid or needs something that we cannot compute exactly.
    """
    if is_folder(path):
        return plan_folder(path)
    file = read_gguf_model(path)
    return plan_gguf(file, None if file.more_files else file_sha256)
