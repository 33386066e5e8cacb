"""Finds where the last tokens of a text occurred before: the longest run of them, the latest among equals.

Chains of equal pairs, like deflate's (RFC 1951, 4): each position remembers where the pair that ends there ended before. A
token costs one dictionary entry and one integer; a search looks at the latest few places only. It knows no drafts.
"""

from array import array
from typing import NamedTuple

MAX_CANDIDATES = 8
MAX_MATCH = 8
"""Places compared, and tokens compared at each: more of either found no better drafts in benchmarks/edits.py."""


class Match(NamedTuple):
    """The tokens up to `end` (not included) equal the text's last `length`."""

    end: int
    length: int


class Occurrences:
    """An index over `tokens`, which its owner may only append to."""

    __slots__ = ("_last", "_previous", "tokens")

    def __init__(self, tokens: "array[int]") -> None:
        self.tokens = tokens
        self._last: dict[int, int] = {}
        self._previous = array("i")

    @property
    def num_indexed(self) -> int:
        """How many tokens are indexed."""
        return len(self._previous)

    def extend(self, max_tokens: int) -> bool:
        """Index up to `max_tokens` more; return whether all are indexed now."""
        tokens, last, previous = self.tokens, self._last, self._previous
        first = len(previous)
        end = min(len(tokens), first + max_tokens)
        before = tokens[first - 1] if first else -1
        for index in range(first, end):
            token = tokens[index]
            key = before << 32 | token
            previous.append(last.get(key, -1))
            last[key] = index
            before = token
        return end == len(tokens)

    def longest(self) -> Match | None:
        """Return where the last tokens occurred before, at least two of them. All tokens are indexed."""
        tokens = self.tokens
        last = len(tokens) - 1
        best_end, best_length = 0, 1
        candidate = self._previous[last]
        for _ in range(MAX_CANDIDATES):
            if candidate < 1:
                break
            length = 2
            while (
                length < MAX_MATCH
                and length <= candidate
                and tokens[candidate - length] == tokens[last - length]
            ):
                length += 1
            if length > best_length:
                best_end, best_length = candidate + 1, length
                if length == MAX_MATCH:
                    break
            candidate = self._previous[candidate]
        return Match(best_end, best_length) if best_length > 1 else None
