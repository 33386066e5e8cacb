"""The header of a safetensors file, read without trusting it: which tensors it holds and where their bytes lie.

The file is 8 bytes with the length of a JSON header, the header, then the tensors' data, gapless and in any order of
names (github.com/huggingface/safetensors, README). Everything is checked against the file before it is believed, so a
truncated, damaged or hostile file ends in a `ModelFileError` of one sentence. It never touches tensor data.

A header needs at most nine times its size (text outside of the Basic Multilingual Plane, as a whole and as one string), up
to `MAX_HEADER_BYTES`, and 150 MB for what it says: below 450 MB in all. Published ones need a few megabytes.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from headway.core.errors import ModelFileError
from headway.models.model_folder import LFS_MAGIC, refuse_lfs_pointer
from headway.models.quote import quoted
from headway.models.strict_json import decode_json_object

MAX_HEADER_BYTES = 32 * 1024 * 1024
"""The format allows 100 MB. The largest open models have some 90,000 tensors, about 11 MB of header were they one file."""
MAX_DIMENSIONS = 8  # no weight has more than 5
_LENGTH_BYTES = 8

_BITS = {  # of one element; names as in the format's Dtype
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """One tensor: row-major `shape`; `offset` counts from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A validated header: names are unique, and the tensors' data fills the rest of the file without gap or overlap."""

    path: Path
    metadata: Mapping[str, str]
    tensors: Mapping[str, SafetensorsTensor]


def read_safetensors(path: Path) -> SafetensorsFile:
    """Read and validate the header of the safetensors file at `path`.

    Raises ModelFileError, one sentence with file and reason, for anything that is not a readable, valid file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            _fail(path, "not a regular file")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(_LENGTH_BYTES)
            refuse_lfs_pointer(path, start + stream.read(len(LFS_MAGIC) - _LENGTH_BYTES))
            stream.seek(_LENGTH_BYTES)
            length = int.from_bytes(start, "little")
            if len(start) < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
                _fail(
                    path, "the file ends within the header (an incomplete download, or no safetensors file)"
                )
            if length > MAX_HEADER_BYTES:
                _fail(path, f"the header is {length} bytes long; at most {MAX_HEADER_BYTES} are supported")
            header = stream.read(length)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except ValueError as error:  # a path with a null byte
        raise ModelFileError(f"{path}: cannot be read ({error}).") from error
    if len(header) < length:
        _fail(path, "the file ends within the header (it became shorter while it was read)")
    if not header.startswith(b"{"):
        _fail(path, "not a safetensors file (the header does not start with '{')")
    entries = decode_json_object(header, f"{path}: the header")
    metadata = _metadata(path, entries.pop("__metadata__", {}))
    data_start = _LENGTH_BYTES + length
    tensors = {name: _tensor(path, name, entry, data_start) for name, entry in entries.items()}
    _check_layout(path, tensors, data_start, size)
    return SafetensorsFile(path, MappingProxyType(metadata), MappingProxyType(tensors))


def _metadata(path: Path, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        _fail(path, "__metadata__ is not an object of strings")
    return value


def _tensor(path: Path, name: str, entry: object, data_start: int) -> SafetensorsTensor:
    what = f"tensor {quoted(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _fail(path, f"{what} is not an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        _fail(path, f"{what} has the unknown dtype {quoted(dtype)}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        _fail(path, f"{what} has no shape of up to {MAX_DIMENSIONS} sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _fail(path, f"{what} has no data_offsets of a begin and an end behind it")
    begin, end = offsets
    num_bits = prod(shape) * bits
    if num_bits != (end - begin) * 8:
        _fail(path, f"{what} has {end - begin} bytes, but its shape and dtype need {-(-num_bits // 8)}")
    return SafetensorsTensor(name, dtype, tuple(shape), data_start + begin, end - begin)


def _are_sizes(value: object) -> bool:
    """Whether it is a list of integers from 0 to 2^63-1; bounded, products of a few stay cheap to compute."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_layout(path: Path, tensors: Mapping[str, SafetensorsTensor], data_start: int, size: int) -> None:
    """Check that the data of all tensors fills the rest of the file: no gap, in which anything could hide, no overlap."""
    at, before = data_start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.num_bytes)):
        if tensor.offset != at:
            problem = "overlaps" if tensor.offset < at else "leaves a gap after"
            _fail(path, f"the data of tensor {quoted(tensor.name)} {problem} {before}")
        at, before = at + tensor.num_bytes, f"that of {quoted(tensor.name)}"
    if at > size:
        _fail(
            path, f"the data ends at byte {at}, but the file has only {size} bytes (an incomplete download?)"
        )
    if at < size:
        _fail(path, f"{size - at} bytes follow the data of the last tensor")


def _fail(path: Path, reason: str) -> NoReturn:
    raise ModelFileError(f"{path}: {reason}.")
