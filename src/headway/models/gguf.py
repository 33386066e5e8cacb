"""The header of a GGUF file, read without trusting it: metadata and where each tensor's bytes lie.

Every count, length and offset is checked against the file before anything is read or allocated, so a truncated,
damaged or hostile file ends in a `ModelFileError` of one sentence. It knows no architecture and never touches tensor
data. Format: the GGUF specification (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian.

A header takes at most 6 bytes of memory for each of its own (text that Python stores with 4 bytes a character, while it
is decoded), 112 for each element of an array, and 1,024 for each key and tensor: with the limits below less than 1 GB in
the worst case, 300 MB for the largest real one, and next to nothing for a file that merely claims much.
"""

import mmap
import os
import stat
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType
from headway.models.gguf_file import BLOCK_LAYOUT, GgufFile, GgufTensor, MetadataValue
from headway.models.model_folder import LFS_MAGIC, refuse_lfs_pointer
from headway.models.quote import quoted

# Largest header seen in the wild: about 260,000 tokens with scores and types and 515,000 merges (Gemma 3, Llama 4), below
# 20 MB. The limits leave room for three times that, and bound the memory that a hostile header can claim.
MAX_HEADER_BYTES = 64 * 1024 * 1024
MAX_METADATA_KEYS = 65_536
MAX_ARRAY_ELEMENTS = 4_000_000  # over all arrays of the file
MAX_TEXT_BYTES = 4 * 1024 * 1024  # a single text; the longest chat templates have 50 KB
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535  # the specification's
MAX_TENSOR_NAME_BYTES = 64  # the specification's
MAX_DIMENSIONS = 4  # the specification's
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32  # the specification's

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {  # value type -> struct format
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    10: "Q",
    11: "q",
    12: "d",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9

# Names of the types that exist but are not read, so that a refusal can name them (ggml.h, enum ggml_type).
_OTHER_TYPES = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


def read_gguf(path: Path) -> GgufFile:
    """Read and validate the header of the GGUF file at `path`.

    Raises ModelFileError, one sentence with file and reason, for anything that is not a readable, valid GGUF file.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ModelFileError(f"{path}: not a regular file.")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                raise ModelFileError(f"{path}: the file is empty.")
            with mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).read()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except ValueError as error:  # a path with a null byte, a file that shrank before it was mapped
        raise ModelFileError(f"{path}: cannot be read ({error}).") from error


class _Reader:
    """A cursor over the header; every read first checks that its bytes exist."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._limit = min(self._size, MAX_HEADER_BYTES)
        self._at = 0
        self._elements_left = MAX_ARRAY_ELEMENTS

    def read(self) -> GgufFile:
        refuse_lfs_pointer(self._path, self._data[: len(LFS_MAGIC)])
        if self._data[:4] != _MAGIC:
            self._fail("not a GGUF file (it does not start with 'GGUF')")
        self._at = 4
        version = self._integer("I", "the version")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            if swapped in _VERSIONS:
                self._fail("a big-endian GGUF file, only little-endian ones are supported")
            self._fail(f"GGUF version {version} is not supported, only versions 2 and 3 are")
        num_tensors = self._count("tensors", MAX_TENSORS)
        num_keys = self._count("metadata keys", MAX_METADATA_KEYS)
        metadata = self._metadata(num_keys)
        alignment = self._alignment(metadata)
        tensors = self._tensors(num_tensors, alignment)
        return GgufFile(self._path, version, alignment, MappingProxyType(metadata), MappingProxyType(tensors))

    def _metadata(self, num_keys: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for index in range(num_keys):
            key = self._string(f"metadata key {index}", MAX_KEY_BYTES)
            if not key:
                self._fail(f"metadata key {index} is empty")
            if key in metadata:
                self._fail(f"the metadata key {quoted(key)} occurs twice")
            metadata[key] = self._value(f"the value of {quoted(key)}")
        return metadata

    def _value(self, what: str) -> MetadataValue:
        kind = self._integer("I", what)
        if kind == _STRING:
            return self._string(what, MAX_TEXT_BYTES)
        if kind == _ARRAY:
            return self._array(what)
        return self._scalars(kind, 1, what)[0]

    def _array(self, what: str) -> MetadataValue:
        kind = self._integer("I", what)
        count = self._integer("Q", what)
        if count > self._elements_left:
            self._fail(
                f"{what} has {count} elements; at most {MAX_ARRAY_ELEMENTS} over all arrays are supported"
            )
        self._elements_left -= count
        if kind == _ARRAY:
            self._fail(f"{what} is an array of arrays, which is not supported")
        if kind == _STRING:
            return self._strings(count, what)
        return self._scalars(kind, count, what)

    def _scalars(
        self, kind: int, count: int, what: str
    ) -> tuple[bool, ...] | tuple[int, ...] | tuple[float, ...]:
        code = "B" if kind == _BOOL else _SCALARS.get(kind)
        if code is None:
            self._fail(f"{what} has the unknown type {kind}")
        item_bytes = struct.calcsize(f"<{code}")
        self._need(count * item_bytes, what)
        values = struct.unpack_from(f"<{count}{code}", self._data, self._at)
        self._at += count * item_bytes
        if kind == _BOOL:
            if any(value > 1 for value in values):
                self._fail(f"{what} is a bool that is neither 0 nor 1")
            return tuple(value == 1 for value in values)
        return values

    def _strings(self, count: int, what: str) -> tuple[str, ...]:
        # A vocabulary and its merges are 100,000 to 800,000 strings, hence a loop without calls into other methods.
        self._need(count * 8, what)
        data, at, limit = self._data, self._at, self._limit
        unpack_length = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        append = strings.append
        try:
            for _ in range(count):
                start = at + 8
                if start > limit:
                    self._fail_end(what)
                at = start + unpack_length(data, at)[0]
                if at > limit:
                    self._fail_end(what)
                append(data[start:at].decode())
        except UnicodeDecodeError:
            self._fail(f"{what} has an element that is not valid UTF-8")
        self._at = at
        return tuple(strings)

    def _string(self, what: str, max_bytes: int) -> str:
        length = self._integer("Q", what)
        self._need(length, what)
        if length > max_bytes:
            self._fail(f"{what} is {length} bytes long; at most {max_bytes} are allowed")
        raw = self._data[self._at : self._at + length]
        self._at += length
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._fail(f"{what} is not valid UTF-8")

    def _alignment(self, metadata: Mapping[str, MetadataValue]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if (
            type(alignment) is not int
            or not 8 <= alignment <= MAX_ALIGNMENT
            or alignment & (alignment - 1)  # GGUF asks for a multiple of 8; ggml for a power of two
        ):
            self._fail(f"general.alignment is not a power of two from 8 to {MAX_ALIGNMENT}")
        return alignment

    def _tensors(self, num_tensors: int, alignment: int) -> dict[str, GgufTensor]:
        relative = [self._tensor_info(index) for index in range(num_tensors)]
        data_start = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for tensor in relative:
            if tensor.name in tensors:
                self._fail(f"the tensor {quoted(tensor.name)} occurs twice")
            if tensor.offset % alignment:
                self._fail(f"the data of tensor {quoted(tensor.name)} is not aligned to {alignment} bytes")
            offset = data_start + tensor.offset
            if offset + tensor.num_bytes > self._size:
                self._fail(
                    f"the data of tensor {quoted(tensor.name)} ends at byte {offset + tensor.num_bytes}, "
                    f"but the file has only {self._size} bytes (an incomplete download?)"
                )
            tensors[tensor.name] = GgufTensor(tensor.name, tensor.dims, tensor.type, offset, tensor.num_bytes)
        in_order = sorted(tensors.values(), key=lambda tensor: tensor.offset)
        for before, after in pairwise(in_order):
            if before.offset + before.num_bytes > after.offset:
                self._fail(f"the data of tensors {quoted(before.name)} and {quoted(after.name)} overlap")
        return tensors

    def _tensor_info(self, index: int) -> GgufTensor:
        """Read one tensor's entry; its offset is still relative to the data section."""
        name = self._string(f"the name of tensor {index}", MAX_TENSOR_NAME_BYTES)
        what = f"tensor {quoted(name)}"
        num_dims = self._integer("I", what)
        if not 1 <= num_dims <= MAX_DIMENSIONS:
            self._fail(f"{what} has {num_dims} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
        dims = tuple(self._integer("Q", what) for _ in range(num_dims))
        number = self._integer("I", what)
        offset = self._integer("Q", what)
        try:
            kind = TensorType(number)
        except ValueError:
            known = ", ".join(kind.name for kind in BLOCK_LAYOUT)
            self._fail(
                f"{what} has the type {_OTHER_TYPES.get(number, number)}, which is not supported "
                f"(supported: {known})"
            )
        num_elements = 1
        for dim in dims:
            num_elements *= dim
        if num_elements == 0:
            self._fail(f"{what} has a dimension of length 0")
        block_elements, block_bytes = BLOCK_LAYOUT[kind]
        if dims[0] % block_elements:
            self._fail(
                f"{what} has rows of {dims[0]} elements, not a multiple of {kind.name}'s {block_elements}"
            )
        return GgufTensor(name, dims, kind, offset, num_elements // block_elements * block_bytes)

    def _count(self, what: str, maximum: int) -> int:
        count = self._integer("Q", f"the number of {what}")
        if count > maximum:
            self._fail(f"it claims {count} {what}; at most {maximum} are supported")
        return count

    def _integer(self, code: str, what: str) -> int:
        num_bytes = 8 if code == "Q" else 4
        self._need(num_bytes, what)
        value = int.from_bytes(self._data[self._at : self._at + num_bytes], "little")
        self._at += num_bytes
        return value

    def _need(self, num_bytes: int, what: str) -> None:
        if num_bytes > self._limit - self._at:
            self._fail_end(what)

    def _fail_end(self, what: str) -> NoReturn:
        if self._limit < self._size:
            self._fail(f"the header exceeds {MAX_HEADER_BYTES} bytes within {what}")
        self._fail(f"the file ends within {what} (an incomplete download?)")

    def _fail(self, reason: str) -> NoReturn:
        raise ModelFileError(f"{self._path}: {reason}.")
