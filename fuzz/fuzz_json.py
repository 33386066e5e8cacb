"""Bodies of requests, of every endpoint."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import parse_body

from entrance import fuzz
from headway.core.errors import InvalidRequest
from json_mutator import mutate_json


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    return data[:1] + mutate_json(data[1:], max_size - 1, seed)


if __name__ == "__main__":
    fuzz(parse_body, InvalidRequest, mutate=mutate)
