"""The text side of a Hugging Face folder, from the bytes of its files to token ids."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import read_tokenizer_folder

from entrance import fuzz
from headway.core.errors import ModelFileError
from json_mutator import mutate_json


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
    fuzz(read_tokenizer_folder, ModelFileError, mutate=mutate)
