"""The weights of a Hugging Face folder, from the bytes of config.json and model.safetensors to a plan."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import read_weights_folder

from entrance import fuzz
from headway.core.errors import ModelFileError
from json_mutator import mutate_json


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change one of the two texts, both of them JSON at first."""
    length = int.from_bytes(data[1:3], "little")
    config, weights = data[3 : 3 + length], data[3 + length :]
    if seed & 1:
        config = mutate_json(config, 60_000, seed)
    else:
        weights = mutate_json(weights, max_size, seed)
    changed = data[:1] + len(config).to_bytes(2, "little") + config + weights
    return changed if len(changed) <= max_size else data


if __name__ == "__main__":
    fuzz(read_weights_folder, ModelFileError, one_line=True, mutate=mutate)
