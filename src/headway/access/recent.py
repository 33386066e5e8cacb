"""A bounded memory of the last values asked for, by digest. What has not been asked for longest goes first."""

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """At most `max_entries` values."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._values: OrderedDict[bytes, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, digest: bytes) -> V | None:
        """Return a value and take note that it was asked for; None if there is none."""
        value = self._values.get(digest)
        if value is not None:
            self._values.move_to_end(digest)
        return value

    def put(self, digest: bytes, value: V) -> None:
        """Keep a value, in the place of the one before."""
        self._values[digest] = value
        self._values.move_to_end(digest)
        if len(self._values) > self._max_entries:
            self._values.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        """Forget a value, if there is one."""
        self._values.pop(digest, None)

    def clear(self) -> None:
        """Forget all of them."""
        self._values.clear()
