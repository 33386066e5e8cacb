"""Cuts long text into pieces that tokenise to the same ids as the whole. It is told where cuts are harmless.

Words (byte-level BPE): in every pre-tokenizer pattern we support a run of letters ends a word: `\\p{L}+` is greedy, nothing
looks behind, and the look-ahead `\\s+(?!\\S)` concerns white space only. So between a letter and a character that is not a
letter there is always a boundary, which merging never crosses. Where digits are words by themselves, so is there between
two digits. Only characters whose class is the same in every Unicode version are used.

Pairs (SentencePiece, which knows no words): a merge across a place makes a token that contains the two characters on
either side of it as neighbours. So where no token has those neighbours, nothing crosses. Where a tokenizer puts a space
before every text, a cut takes a space out, which comes back in front of the next piece.

No cut falls into an added token. A piece that goes on for `MAX_PIECE_CHARS` is cut regardless: no real text has one, ids
differ only at the seam, and without the cut an 8 MiB word would take 866 MB and hold the interpreter lock for 100 ms.
"""

import itertools
import re
from collections.abc import Iterable, Iterator

PIECE_CHARS = 16_384
"""Characters per piece: about 4,000 ids, whose conversion holds the interpreter lock for less than 1 ms."""
MAX_PIECE_CHARS = 262_144
"""Characters after which a piece ends wherever it is."""
_WINDOW_CHARS = 32_768  # what one regex search looks at; it holds the interpreter lock (for less than 1 ms)
_LOOK_CHARS = 2  # the longest cut and what it looks ahead at

_LETTERS = "A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5"
_AFTER_LETTERS = ' \t\n\r0123456789!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\u3001\u3002\uff0c'  # no apostrophe: don't

PAIR_CHARS = " \n\t\u3001\u3002\uff0c\uff01\uff1f"
"""Before which of these characters text may be cut is looked up in the vocabulary."""


class TextSplitter:
    """Knows where text may be cut. Immutable, safe from any thread.

    cut            where: matches nothing, or what is left out of both pieces; None = never, however long a text is
    added_tokens   strings that are one token wherever they stand
    """

    def __init__(self, cut: str | None, added_tokens: Iterable[str] = ()) -> None:
        self._cut = None if cut is None else re.compile(cut or "(?!)")
        self._added = tuple(added_tokens)

    def split(self, text: str) -> Iterator[str]:
        """Yield pieces of `PIECE_CHARS` to `MAX_PIECE_CHARS` characters, the last one shorter."""
        start = 0
        while self._cut is not None and len(text) - start > PIECE_CHARS:
            end, next_start = self._next_cut(self._cut, text, start)
            yield text[start:end]
            start = next_start
        if start < len(text):
            yield text[start:]

    def _next_cut(self, cut: re.Pattern[str], text: str, start: int) -> tuple[int, int]:
        last = min(start + MAX_PIECE_CHARS, len(text))
        for position in range(start + PIECE_CHARS, last, _WINDOW_CHARS):
            # A search sees nothing beyond its end, so it may not match there: windows overlap.
            match = cut.search(text, position, min(position + _WINDOW_CHARS + _LOOK_CHARS, last))
            if match:
                return match.span()
        end = len(text) if last == len(text) else self._outside_added_tokens(text, last)
        return end, end

    def _outside_added_tokens(self, text: str, position: int) -> int:
        """Return `position`, or where the added token that lies across it begins."""
        best = position
        for token in self._added:
            found = text.find(token, max(0, position - len(token) + 1), position + len(token) - 1)
            if found >= 0:
                best = min(best, found)
        return best


def split_words(added_tokens: Iterable[str], *, lone_digits: bool) -> TextSplitter:
    """Return the splitter for byte-level BPE. `lone_digits`: the pre-tokenizer makes each digit a word."""
    added = tuple(added_tokens)
    after_letter = re.compile(f"(?<=[{_LETTERS}]).", re.DOTALL)
    inside = {char for token in added for char in after_letter.findall(token)}
    after = "".join(re.escape(char) for char in _AFTER_LETTERS if char not in inside)
    cuts = [f"(?<=[{_LETTERS}])(?=[{after}])"] if after else []
    if lone_digits and not any(re.search(r"[0-9][0-9]", token) for token in added):
        cuts.append("(?<=[0-9])(?=[0-9])")
    return TextSplitter("|".join(cuts), added)


def split_pairs(
    tokens: Iterable[str], added_tokens: Iterable[str], *, space_prefix: bool, strips: bool
) -> TextSplitter:
    """Return the splitter for SentencePiece.

    tokens        all that merging may make
    space_prefix  every text, also between two added tokens, gets a space in front
    strips        added tokens swallow white space around them
    """
    added = tuple(added_tokens)
    before = _before(itertools.chain(tokens, added))
    ends = {token[-1:] for token in added} if space_prefix or strips else set()
    never_after = {"\0", *ends, *(" \t\n\r\f\v" if strips else ())}
    cuts = []
    for char in " " if space_prefix else PAIR_CHARS:
        behind = f"(?<=[^{_chars(before[char] | never_after)}])"
        if not space_prefix:
            cuts.append(f"{behind}(?=[{re.escape(char)}])")
            continue
        # The space is taken out, so neither it nor what follows may belong to an added token. Before a space, or its
        # name, some tokenizers put no other.
        within = set(re.findall("(?<=[ \u2581]).", "\0".join(added), re.DOTALL))
        follow = within | {token[:1] for token in added} | {" ", "\u2581", "\0"}
        cuts.append(f"{behind}[ ](?=[^{_chars(follow)}])")
    return TextSplitter("|".join(cuts), added)


def _before(tokens: Iterable[str]) -> dict[str, set[str]]:
    """Return, for each of PAIR_CHARS, the characters right before it in any token; U+2581 is written for a space."""
    pair = re.compile(f"(?=([^\0][\u2581{re.escape(PAIR_CHARS)}]))", re.DOTALL)
    before: dict[str, set[str]] = {char: set() for char in PAIR_CHARS}
    for left, char in set(pair.findall("\0".join(tokens))):
        before[" " if char == "\u2581" else char] |= {" ", "\u2581"} if left in " \u2581" else {left}
    return before


def _chars(chars: Iterable[str]) -> str:
    return "".join(map(re.escape, sorted(chars)))
