"""Cuts long text into pieces that tokenise to the same ids as the whole. It knows no vocabulary.

In every pre-tokenizer pattern we support a run of letters ends a word: `\\p{L}+` is greedy, nothing looks behind, and the
look-ahead `\\s+(?!\\S)` concerns white space only. So between a letter and a character that is not a letter there is
always a boundary, which merging never crosses. Where digits are words by themselves, so is there between two digits.
Only characters whose class is the same in every Unicode version are used, and no cut falls into an added token.

A word that goes on for `MAX_PIECE_CHARS` is cut regardless: no real text has one, ids differ only at the seam, and
without the cut an 8 MiB word would take 866 MB and hold the interpreter lock for 100 ms.
"""

import re
from collections.abc import Iterable, Iterator

PIECE_CHARS = 16_384
"""Characters per piece: about 4,000 ids, whose conversion holds the interpreter lock for less than 1 ms."""
MAX_PIECE_CHARS = 262_144
"""Characters after which a piece ends wherever it is."""
_WINDOW_CHARS = 32_768  # what one regex search looks at; it holds the interpreter lock (for less than 1 ms)

_LETTERS = "A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5"
_AFTER_LETTERS = ' \t\n\r0123456789!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\u3001\u3002\uff0c'  # no apostrophe: don't


class TextSplitter:
    """Knows where text may be cut. Immutable, safe from any thread.

    added_tokens  strings that are one token wherever they stand
    lone_digits   whether the pre-tokenizer makes each digit a word
    """

    def __init__(self, added_tokens: Iterable[str], *, lone_digits: bool) -> None:
        self._added = tuple(added_tokens)
        after_letter = re.compile(f"(?<=[{_LETTERS}]).", re.DOTALL)
        inside = {char for token in self._added for char in after_letter.findall(token)}
        after = "".join(re.escape(char) for char in _AFTER_LETTERS if char not in inside)
        cuts = [f"(?<=[{_LETTERS}])(?=[{after}])"] if after else []
        if lone_digits and not any(re.search(r"[0-9][0-9]", token) for token in self._added):
            cuts.append("(?<=[0-9])(?=[0-9])")
        self._cut = re.compile("|".join(cuts) or "(?!)")

    def split(self, text: str) -> Iterator[str]:
        """Yield pieces of `PIECE_CHARS` to `MAX_PIECE_CHARS` characters, the last one shorter; joined they are `text`."""
        start = 0
        while len(text) - start > PIECE_CHARS:
            end = self._next_cut(text, start)
            yield text[start:end]
            start = end
        if start < len(text):
            yield text[start:]

    def _next_cut(self, text: str, start: int) -> int:
        last = min(start + MAX_PIECE_CHARS, len(text))
        for position in range(start + PIECE_CHARS, last, _WINDOW_CHARS):
            # A search sees nothing beyond its end, so it may not match there: windows overlap by one character.
            match = self._cut.search(text, position, min(position + _WINDOW_CHARS + 1, last))
            if match:
                return match.start()
        return len(text) if last == len(text) else self._outside_added_tokens(text, last)

    def _outside_added_tokens(self, text: str, position: int) -> int:
        """Return `position`, or where the added token that lies across it begins."""
        best = position
        for token in self._added:
            found = text.find(token, max(0, position - len(token) + 1), position + len(token) - 1)
            if found >= 0:
                best = min(best, found)
        return best
