"""A GGUF file, from its bytes to a summary and a plan.

The first byte says whether a hole follows the others, where tensors without data may lie.
"""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from headway.models.architectures import open_plan
    from headway.models.summary import summarise

from entrance import fuzz, scratch_folder, write_file
from gguf_mutator import GgufMutator
from headway.core.errors import ModelFileError

PATH = scratch_folder() / "model.gguf"


def one_input(data: bytes) -> None:
    write_file(PATH, data[1:], extended=data[:1] > b"\x7f")
    summarise(PATH)
    open_plan(PATH)


if __name__ == "__main__":
    fuzz(one_input, ModelFileError, one_line=True, mutate=GgufMutator())
