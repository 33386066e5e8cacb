"""Mutations of a GGUF file that stay one, as far as counts and lengths go: most bytes changed at random break the frame."""

import random
import struct
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-untyped]

from entrance import scratch_folder
from headway.core.errors import ModelFileError
from headway.models.gguf import read_gguf
from json_mutator import mutate_tree
from support.entrances import is_extended, write_file
from support.gguf_writer import MetadataInput, TensorInput, encode_gguf

_NUMBERS = ((4, "I"), (5, "i"), (10, "Q"), (11, "q"))  # value types of integers, as structs
_STRING, _ARRAY, _DOUBLE = 8, 9, 12


class GgufMutator:
    """Reads an input, changes keys, values and tensors of its header, and writes it anew. The first byte is not of it."""

    def __init__(self) -> None:
        self._path: Path = scratch_folder() / "mutated.gguf"

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Return `data` changed; what is no valid file is changed as libFuzzer does."""
        chance = random.Random(seed)
        write_file(self._path, data[1:], extended=is_extended(data))
        try:
            file = read_gguf(self._path)
        except ModelFileError:
            return bytes(atheris.Mutate(data, max_size))
        start = min((tensor.offset for tensor in file.tensors.values()), default=len(data))
        tree = mutate_tree(
            {
                "keys": {
                    key: list(value) if isinstance(value, tuple) else value
                    for key, value in file.metadata.items()
                },
                "tensors": [
                    [tensor.name, list(tensor.dims), int(tensor.type), tensor.offset - start]
                    for tensor in file.tensors.values()
                ],
            },
            chance,
        )
        try:
            header = encode_gguf(
                {str(key): _value(value) for key, value in tree["keys"].items()},
                [
                    TensorInput(name, tuple(dims), kind, b"", offset=at)
                    for name, dims, kind, at in tree["tensors"]
                ],
            )
        except (
            AttributeError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
            struct.error,
        ):  # the tree has lost its shape
            return bytes(atheris.Mutate(data, max_size))
        changed = data[:1] + header + data[1 + start :]
        return changed if len(changed) <= max_size else bytes(atheris.Mutate(data, max_size))


def _value(value: Any) -> MetadataInput:
    match value:
        case bool() | str():
            return value
        case int() | float():
            kind, code = _number([value])
            return struct.pack(f"<I{code}", kind, value)
        case []:
            return struct.pack("<IIQ", _ARRAY, _STRING, 0)
        case [str(), *_]:
            return [str(item) for item in value]
        case [bool() | int() | float(), *_]:
            kind, code = _number(value)
            return struct.pack(f"<IIQ{len(value)}{code}", _ARRAY, kind, len(value), *value)
    raise ValueError(f"no value of a GGUF file: {value!r}")


def _number(values: list[Any]) -> tuple[int, str]:
    """Return type and struct code of the smallest type of integers, or the largest of floats, that holds `values`."""
    for kind, code in _NUMBERS:
        try:
            struct.pack(f"<{len(values)}{code}", *values)
        except struct.error:
            continue
        return kind, code
    return _DOUBLE, "d"
