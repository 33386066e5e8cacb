"""A GGUF file, from its bytes to a summary and a plan."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import read_gguf_file

from entrance import fuzz
from gguf_mutator import GgufMutator
from headway.core.errors import ModelFileError

if __name__ == "__main__":
    fuzz(read_gguf_file, ModelFileError, one_line=True, mutate=GgufMutator())
