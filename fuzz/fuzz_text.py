"""The text side of a GGUF file, from its bytes to token ids."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import read_gguf_text

from entrance import fuzz
from gguf_mutator import GgufMutator
from headway.core.errors import ModelFileError

if __name__ == "__main__":
    fuzz(read_gguf_text, ModelFileError, mutate=GgufMutator())
