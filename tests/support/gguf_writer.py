"""Writes GGUF files, well-formed or not, for tests. Format: the GGUF specification, little-endian, version 3."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MetadataInput = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float] | bytes
"""A value to write: int as uint32, float as float32, arrays of int as int32; bytes are type and value, raw."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor to write; `dims` has the contiguous dimension first. `offset` replaces the computed one."""

    name: str
    dims: tuple[int, ...]
    type: int
    data: bytes
    offset: int | None = None


def encode_gguf(
    metadata: Mapping[str, MetadataInput] | Sequence[tuple[str, MetadataInput]],
    tensors: Sequence[TensorInput] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """Return a GGUF file. Pairs instead of a mapping allow duplicate keys; nothing is checked."""
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    header = bytearray(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)))
    for key, value in pairs:
        header += _string(key) + _value(value)
    body = bytearray()
    for tensor in tensors:
        offset = len(body) if tensor.offset is None else tensor.offset
        header += _string(tensor.name) + struct.pack("<I", len(tensor.dims))
        header += struct.pack(f"<{len(tensor.dims)}Q", *tensor.dims) + struct.pack("<IQ", tensor.type, offset)
        body += tensor.data + bytes(-len(tensor.data) % alignment)
    return bytes(header + bytes(-len(header) % alignment) + body)


def encode_gguf_shards(
    metadata: Mapping[str, MetadataInput], tensors: Sequence[TensorInput], count: int
) -> tuple[bytes, ...]:
    """Return `count` files as llama.cpp's gguf-split makes them; the first has the metadata, each some tensors in order."""
    size = -(-len(tensors) // count)
    return tuple(
        encode_gguf(
            {
                **(metadata if number == 0 else {}),
                "split.no": struct.pack("<IH", 2, number),
                "split.count": struct.pack("<IH", 2, count),
                "split.tensors.count": struct.pack("<Ii", 5, len(tensors)),
            },
            tensors[number * size : (number + 1) * size],
        )
        for number in range(count)
    )


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: MetadataInput) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return struct.pack("<I", 8) + _string(value)
        case bool():
            return struct.pack("<IB", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_string(str(item)) for item in value)
    code, number = ("f", 6) if value and isinstance(value[0], float) else ("i", 5)
    return struct.pack(f"<IIQ{len(value)}{code}", 9, number, len(value), *value)
