"""The text side of a Hugging Face folder: tokenizer.json and tokenizer_config.json, from their bytes to token ids.

Two bytes with the length of tokenizer_config.json come first, then both files.
"""

import contextlib

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from headway.models.text_side import open_text

from entrance import fuzz, scratch_folder
from headway.core.errors import InvalidRequest, ModelFileError
from json_mutator import mutate_json

FOLDER = scratch_folder()
TEXT = "def f(x):\n\treturn x\u00e9 + 12345  # \U0001f600\r\n<|im_start|>"


def one_input(data: bytes) -> None:
    length = int.from_bytes(data[:2], "little")
    (FOLDER / "tokenizer_config.json").write_bytes(data[2 : 2 + length])
    (FOLDER / "tokenizer.json").write_bytes(data[2 + length :])
    tokenizer = open_text(FOLDER).tokenizer
    with contextlib.suppress(InvalidRequest):  # tokens that the model has no row for
        for token in tokenizer.encode(TEXT):
            assert 0 <= token < tokenizer.vocab_size


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    length = int.from_bytes(data[:2], "little")
    config, tokenizer = data[2 : 2 + length], data[2 + length :]
    if seed % 4 == 0:
        config = mutate_json(config, 60_000, seed)
    else:
        tokenizer = mutate_json(tokenizer, max_size, seed)
    changed = len(config).to_bytes(2, "little") + config + tokenizer
    return changed if len(changed) <= max_size else data


if __name__ == "__main__":
    (FOLDER / "config.json").write_text('{"model_type": "llama"}')
    fuzz(one_input, ModelFileError, mutate=mutate)
