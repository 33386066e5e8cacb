"""A GGUF header as a value: metadata with typed access, and where each tensor's bytes lie.

It reads no file (`headway.models.gguf` does) and knows no architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from headway.core.errors import ModelFileError
from headway.core.plan import TensorType

MetadataValue = (
    bool | int | float | str | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)
"""One metadata value; arrays are tuples of one type."""

BLOCK_LAYOUT: Mapping[TensorType, tuple[int, int]] = MappingProxyType(
    {  # type -> (elements per block, bytes per block)
        TensorType.F32: (1, 4),
        TensorType.F16: (1, 2),
        TensorType.BF16: (1, 2),
        TensorType.Q4_0: (32, 18),  # fp16 scale, 16 bytes of nibbles
        TensorType.Q4_1: (32, 20),  # fp16 scale, fp16 minimum, 16 bytes of nibbles
        TensorType.Q5_0: (32, 22),  # fp16 scale, 32 fifth bits, 16 bytes of nibbles
        TensorType.Q5_1: (32, 24),  # fp16 scale, fp16 minimum, 32 fifth bits, 16 bytes of nibbles
        TensorType.Q8_0: (32, 34),  # fp16 scale, 32 signed bytes
        TensorType.Q4_K: (256, 144),  # fp16 scale, fp16 minimum, 8 x 6 bits for each, 128 bytes of nibbles
        TensorType.Q5_K: (256, 176),  # as Q4_K with 256 fifth bits before the nibbles
        TensorType.Q6_K: (256, 210),  # 128 bytes of nibbles, 64 of bit pairs, 16 byte scales, fp16 scale
        TensorType.IQ4_NL: (32, 18),  # fp16 scale, 16 bytes of nibbles that index a table
    }
)

_V = TypeVar("_V", bool, int, float, str)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `dims` has the contiguous dimension first (GGUF's order); `offset` counts from its file's start.

    `file` is the index of that file in `GgufFile.files`.
    """

    name: str
    dims: tuple[int, ...]
    type: TensorType
    offset: int
    num_bytes: int
    file: int = 0


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A validated header. Tensors lie aligned inside their file and do not overlap; keys and names are unique.

    A model in shards (`headway.models.gguf_shards`) has the metadata of the first and the tensors of all.
    """

    path: Path
    version: int
    alignment: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, GgufTensor]
    more_files: tuple[Path, ...] = ()
    """The shards after the first, in order."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Where tensors lie: the file itself, or its shards in order."""
        return (self.path, *self.more_files)

    def text(self, key: str, default: str | None = None) -> str:
        """Return the string at `key`; raises ModelFileError if it is missing (without default) or no string."""
        return self._scalar(key, str, default)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return the integer at `key`; raises ModelFileError if it is missing (without default) or no integer."""
        return self._scalar(key, int, default)

    def number(self, key: str, default: float | None = None) -> float:
        """Return the number at `key` as a float; raises ModelFileError if it is missing or no number."""
        value = self.metadata.get(key, default)
        if type(value) is int:
            return float(value)
        return self._scalar(key, float, default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return the bool at `key`; raises ModelFileError if it is missing (without default) or no bool."""
        return self._scalar(key, bool, default)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the array of strings at `key`; raises ModelFileError if it is missing or something else."""
        return self._array(key, str)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return the array of integers at `key`; raises ModelFileError if it is missing or something else."""
        return self._array(key, int)

    def _scalar(self, key: str, kind: type[_V], default: _V | None) -> _V:
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.path}: the metadata key {key} is missing.")
        if type(value) is not kind:  # exact: a bool is no integer here
            raise ModelFileError(f"{self.path}: the metadata key {key} is not of type {kind.__name__}.")
        return value

    def _array(self, key: str, kind: type[_V]) -> tuple[_V, ...]:
        value = self.metadata.get(key)
        if value is None:
            raise ModelFileError(f"{self.path}: the metadata key {key} is missing.")
        if not isinstance(value, tuple) or (value and type(value[0]) is not kind):  # elements share a type
            raise ModelFileError(f"{self.path}: the metadata key {key} is not an array of {kind.__name__}.")
        return value  # type: ignore[return-value]  # checked above; the union of tuples does not narrow
