"""Makes one vector of a text's hidden states, however the text was cut into chunks.

The mean adds up positions in ascending order, one after another, in double precision, and carries the sum from chunk to
chunk: so the result does not depend on the chunks, like everything the native core computes. Vectors get length 1, as
OpenAI's and sentence-transformers' do, so that their dot product is their cosine.
"""

import math
from array import array
from collections.abc import Iterable
from operator import add
from typing import Protocol

from headway.core.request import Pooling


class Pooler:
    """Collects the hidden states of one sequence, chunk by chunk. Owned by its sequence."""

    def __init__(self, kind: Pooling) -> None:
        self.kind = kind
        self._total: list[float] = []
        self._num_rows = 0

    def num_rows(self, num_tokens: int, *, ends: bool) -> int:
        """How many hidden rows a chunk of `num_tokens` must give: the last ones; `ends`: it reaches the text's end."""
        return num_tokens if self.kind == "mean" else int(ends)

    def push(self, rows: memoryview, num_rows: int) -> None:
        """Take the hidden rows of a chunk, float32 (num_rows, hidden_size), in order."""
        if not num_rows:
            return
        values = array("f", rows.tobytes())
        size = len(values) // num_rows
        for start in range(0, len(values), size):
            row = values[start : start + size]
            self._total = list(map(add, self._total, row)) if self._total else row.tolist()
        self._num_rows += num_rows

    def reset(self) -> None:
        """Begin anew: the sequence lost its place."""
        self._total = []
        self._num_rows = 0

    def result(self) -> bytes | None:
        """Return the vector, float32 (hidden_size,) of length 1; None if it has no direction (zero, or not finite)."""
        norm = math.hypot(*self._total)
        if not (norm > 0 and math.isfinite(norm)):
            return None
        return array("f", [value / norm for value in self._total]).tobytes()


class _Pooled(Protocol):
    @property
    def pooler(self) -> Pooler | None: ...


class _Chunk(Protocol):
    @property
    def sequence(self) -> _Pooled: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def draws(self) -> bool: ...


class HiddenRows:
    """A step's hidden rows, given out to the poolers that asked for them, in the order of its chunks.

    hidden   float32 bytes (num_rows, hidden_size); empty when no chunk asked
    """

    def __init__(self, hidden: bytes, chunks: Iterable[_Chunk]) -> None:
        self._hidden = memoryview(hidden)
        num_rows = 0
        if hidden:
            num_rows = sum(
                chunk.sequence.pooler.num_rows(chunk.num_tokens, ends=chunk.draws)
                for chunk in chunks
                if chunk.sequence.pooler is not None
            )
        self._row_bytes = len(hidden) // num_rows if num_rows else 0
        self._at = 0

    def push(self, pooler: Pooler, num_tokens: int, *, ends: bool) -> None:
        """Give `pooler` the rows of its chunk."""
        num_rows = pooler.num_rows(num_tokens, ends=ends)
        end = self._at + num_rows * self._row_bytes
        pooler.push(self._hidden[self._at : end], num_rows)
        self._at = end
