"""A Hugging Face folder, from the bytes of its config.json and model.safetensors to a summary and a plan.

The first byte's high bit says whether the safetensors file is the input's, or a header alone, to which its length and a
hole of the size that its offsets ask for are added. Two bytes with the length of config.json follow, then both.
"""

import os
import re

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from headway.models.architectures import open_plan
    from headway.models.safetensors import read_safetensors
    from headway.models.summary import summarise

from entrance import fuzz, scratch_folder
from headway.core.errors import ModelFileError
from json_mutator import mutate_json

FOLDER = scratch_folder()
WEIGHTS = FOLDER / "model.safetensors"
END = re.compile(rb"\[\s*[0-9]{1,9}\s*,\s*([0-9]{1,9})\s*\]")


def one_input(data: bytes) -> None:
    length = int.from_bytes(data[1:3], "little")
    config, weights = data[3 : 3 + length], data[3 + length :]
    (FOLDER / "config.json").write_bytes(config)
    with WEIGHTS.open("wb") as stream:
        if data[:1] > b"\x7f":
            stream.write(len(weights).to_bytes(8, "little"))
            hole = max((int(end) for end in END.findall(weights)), default=0)
            stream.write(weights)
            stream.flush()
            os.ftruncate(stream.fileno(), 8 + len(weights) + hole)
        else:
            stream.write(weights)
    read_safetensors(WEIGHTS)
    summarise(FOLDER)
    open_plan(FOLDER)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change one of the two texts, both of them JSON at first."""
    length = int.from_bytes(data[1:3], "little")
    config, weights = data[3 : 3 + length], data[3 + length :]
    if seed & 1:
        config = mutate_json(config, 60_000, seed)
    else:
        weights = mutate_json(weights, max_size, seed)
    return (data[:1] + len(config).to_bytes(2, "little") + config + weights)[:max_size]


if __name__ == "__main__":
    fuzz(one_input, ModelFileError, one_line=True, mutate=mutate)
