"""The text side of a GGUF file: tokenizer and chat template, from bytes to token ids and back."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from headway.models.text_side import open_text

from entrance import fuzz, scratch_folder, write_file
from gguf_mutator import GgufMutator
from headway.core.errors import ModelFileError

PATH = scratch_folder() / "model.gguf"
TEXT = "def f(x):\n\treturn x\u00e9 + 12345  # \U0001f600\r\n<|im_start|>"


def one_input(data: bytes) -> None:
    write_file(PATH, data[1:], extended=data[:1] > b"\x7f")
    tokenizer = open_text(PATH).tokenizer
    for token in tokenizer.encode(TEXT):
        assert 0 <= token < tokenizer.vocab_size


if __name__ == "__main__":
    fuzz(one_input, ModelFileError, mutate=GgufMutator())
