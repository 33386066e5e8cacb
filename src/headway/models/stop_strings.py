"""Ends text at the first stop string, however the text is cut into deltas; no part of a stop string is let through.

"First" is the stop string that is complete first; of several that end together the longest, that is the one that begins
first. So the result depends on the text alone, not on how it arrived, and is known as early as possible.

Algorithm: one pass over an automaton of all stop strings (Aho and Corasick, Communications of the ACM 18(6), 1975). Its
state is the longest end of the text so far that begins a stop string: exactly what must be held back. Time per character
does not depend on the number of stop strings. It knows no tokens.
"""

from collections.abc import Iterable

from headway.core.errors import InvalidRequest

_ROOT = 0


class StopStrings:
    """The automaton, built once per request in time linear in the characters (about 1 µs each); immutable.

    Nodes are numbered; node 0 is the empty text. `depths[node]` is how much text a node stands for, `ends[node]` the
    length of the longest stop string that ends there, 0 for none.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        """Raises InvalidRequest for an empty stop string."""
        self._children: list[dict[str, int]] = [{}]
        self._fallbacks: list[int] = [_ROOT]
        self.depths: list[int] = [0]
        self.ends: list[int] = [0]
        for string in dict.fromkeys(strings):
            if not string:
                raise InvalidRequest("A stop string must not be empty.", param="stop")
            self._insert(string)
        self._link()

    def step(self, node: int, char: str) -> int:
        """Return the node after `char`; amortised constant time over a text."""
        children, fallbacks = self._children, self._fallbacks
        while True:
            child = children[node].get(char)
            if child is not None:
                return child
            if node == _ROOT:
                return _ROOT
            node = fallbacks[node]

    def _insert(self, string: str) -> None:
        node = _ROOT
        for char in string:
            child = self._children[node].get(char)
            if child is None:
                child = self._children[node][char] = len(self._children)
                self._children.append({})
                self._fallbacks.append(_ROOT)
                self.depths.append(self.depths[node] + 1)
                self.ends.append(0)
            node = child
        self.ends[node] = len(string)

    def _link(self) -> None:
        """Give each node its fallback: the longest proper end of its text that is a node too; shortest texts first."""
        level = list(self._children[_ROOT].values())
        while level:
            following: list[int] = []
            for node in level:
                for char, child in self._children[node].items():
                    fallback = self._fallbacks[child] = self.step(self._fallbacks[node], char)
                    if not self.ends[child]:
                        self.ends[child] = self.ends[fallback]
                    following.append(child)
            level = following


class StopMatcher:
    """Lets the text of one choice through until a stop string is complete."""

    def __init__(self, stops: StopStrings | Iterable[str]) -> None:
        self._stops = stops if isinstance(stops, StopStrings) else StopStrings(stops)
        self._node = _ROOT
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> bool:
        """Whether a stop string was found; nothing is let through from then on."""
        return self._matched is not None

    @property
    def matched_string(self) -> str | None:
        """The stop string that was found, None before."""
        return self._matched

    def push(self, text: str) -> str:
        """Take text and return what cannot be part of a stop string."""
        if self._matched is not None:
            return ""
        node, step, ends = self._node, self._stops.step, self._stops.ends
        for index, char in enumerate(text):
            node = step(node, char)
            if ends[node]:
                seen = self._held + text[: index + 1]
                self._held = ""
                self._matched = seen[-ends[node] :]
                return seen[: -ends[node]]
        self._node = node
        seen = self._held + text
        num_free = len(seen) - self._stops.depths[node]
        self._held = seen[num_free:]
        return seen[:num_free]

    def flush(self) -> str:
        """Return what was held back, as no more text comes; the matcher starts afresh."""
        held, self._held, self._node = self._held, "", _ROOT
        return held
