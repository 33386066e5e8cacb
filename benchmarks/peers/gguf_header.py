"""Writes headers of GGUF files, and finds the tokenizer's part in one that is there, to copy it as it is.

Format: the GGUF specification, version 3, little-endian. The file read is one that Headway has checked before (`headway
pull` compares its digest), so this trusts it.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

ALIGNMENT = 32
STRING, ARRAY = 8, 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of the scalar types


def encode_pair(key: str, value: str | int | float) -> bytes:
    """Return one metadata pair; int as uint32, float as float32."""
    match value:
        case str():
            tail = struct.pack("<I", STRING) + _string(value)
        case int():
            tail = struct.pack("<II", 4, value)
        case float():
            tail = struct.pack("<If", 6, value)
    return _string(key) + tail


def encode_header(pairs: Iterable[bytes], tensors: Iterable[tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """Return everything before the data. A tensor is its name, dims (contiguous first), type and size in bytes."""
    pairs, tensors = list(pairs), list(tensors)
    header = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)))
    for pair in pairs:
        header += pair
    offset = 0
    for name, dims, tensor_type, num_bytes in tensors:
        header += _string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        header += struct.pack("<IQ", tensor_type, offset)
        offset += num_bytes + padding(num_bytes)
    return bytes(header) + bytes(padding(len(header)))


def padding(num_bytes: int) -> int:
    """Return how many zero bytes follow `num_bytes`."""
    return -num_bytes % ALIGNMENT


def tokenizer_pairs(path: Path) -> list[bytes]:
    """Return the metadata pairs of a GGUF file whose keys begin with `tokenizer.`, each as its bytes."""
    data = path.read_bytes()
    _, _, _, num_pairs = struct.unpack_from("<4sIQQ", data)
    at, found = struct.calcsize("<4sIQQ"), []
    for _ in range(num_pairs):
        key, value_at = _read_string(data, at)
        end = _skip_value(data, value_at)
        if key.startswith(b"tokenizer."):
            found.append(data[at:end])
        at = end
    return found


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _read_string(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length], at + 8 + length


def _skip_value(data: bytes, at: int) -> int:
    (kind,) = struct.unpack_from("<I", data, at)
    if kind != ARRAY:
        return _skip_items(data, at + 4, kind, 1)
    kind, num_items = struct.unpack_from("<IQ", data, at + 4)
    return _skip_items(data, at + 16, kind, num_items)


def _skip_items(data: bytes, at: int, kind: int, num_items: int) -> int:
    if kind != STRING:
        return at + _WIDTHS[kind] * num_items
    for _ in range(num_items):
        _, at = _read_string(data, at)
    return at
