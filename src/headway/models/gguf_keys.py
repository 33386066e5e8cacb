"""The keys of one architecture in a GGUF header, read with bounds; errors name file and key.

It knows no key's meaning: which are understood is the caller's to say.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from headway.core.errors import ModelFileError
from headway.models.gguf_file import GgufFile, MetadataValue
from headway.models.limits import MAX_INT32
from headway.models.quote import quoted


class Keys:
    """Typed access to the metadata keys that begin with the architecture's name, which callers leave out."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self._prefix = f"{architecture}."

    def __contains__(self, name: str) -> bool:
        return self.name(name) in self.file.metadata

    def name(self, name: str) -> str:
        """Return the whole key."""
        return self._prefix + name

    def get(self, name: str, default: MetadataValue | None = None) -> MetadataValue | None:
        """Return the value of any type."""
        return self.file.metadata.get(self.name(name), default)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return the integer; a missing key without default and another type are refused."""
        if isinstance(self.get(name), tuple):
            self.fail(f"{self.name(name)} differs from layer to layer, which is not supported")
        return self.file.integer(self.name(name), default)

    def size(self, name: str, default: int | None = None, *, maximum: int = MAX_INT32) -> int:
        """Return the integer from 1 to `maximum`."""
        value = self.integer(name, default)
        if not 1 <= value <= maximum:
            self.fail(f"{self.name(name)} is {value}, out of range")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return the number as a float; a missing key without default and another type are refused."""
        return self.file.number(self.name(name), default)

    def positive(self, name: str, default: float | None = None, *, maximum: float = math.inf) -> float:
        """Return the number above 0, at most `maximum` and finite."""
        value = self.number(name, default)
        if not (math.isfinite(value) and 0 < value <= maximum):
            limit = "" if math.isinf(maximum) else f", at most {maximum:g}"
            self.fail(f"{self.name(name)} is {value}, but must be positive{limit}")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return the bool; a missing key without default and another type are refused."""
        return self.file.flag(self.name(name), default)

    def text(self, name: str, default: str | None = None) -> str:
        """Return the string; a missing key without default and another type are refused."""
        return self.file.text(self.name(name), default)

    def refuse_unsupported(
        self, understood: Collection[str], off_values: Mapping[str, Sequence[MetadataValue]]
    ) -> None:
        """Refuse every key that is neither understood nor has a value that switches it off."""
        for key, value in self.file.metadata.items():
            name = key.removeprefix(self._prefix)
            if name == key or name in understood:
                continue
            if name not in off_values:
                self.fail(f"the metadata key {quoted(key)} is not supported, it may change the output")
            if value not in off_values[name]:
                off = " or ".join(str(allowed) for allowed in off_values[name]) or "a file without it"
                self.fail(f"{key} is {quoted(value)}, which is not supported (only {off} is)")

    def fail(self, reason: str) -> NoReturn:
        """Raise ModelFileError: the file's path and the reason."""
        raise ModelFileError(f"{self.file.path}: {reason}.")
