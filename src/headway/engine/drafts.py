"""Guesses what a sequence says next from what it has read and said: drafts for speculation without a second model.

Prompt lookup (github.com/apoorvumang/prompt-lookup-decoding): edits of code, summaries and answers that quote repeat their
prompt. A draft stands only where sampling draws the same tokens (after arXiv 2211.17192, 2304.04487), so it changes no
result; it costs rows of a step that waits for memory anyway.

While an answer copies, the drafter holds its place in the source: a stretch of the sequence's own tokens, found by the
longest run of last tokens that occurred before. Where an edit makes the answer leave its source, the place to go on is
looked for near the one that was left, so that copying resumes right after a token was replaced, put in or left out. And
what was replaced once is expected to be replaced again: a variable is renamed everywhere.

It knows no scheduler, no step and no model. Equal tokens give equal drafts.
"""

from array import array
from collections.abc import Container
from typing import NamedTuple

from headway.engine.acceptance import Acceptance, Odds
from headway.engine.occurrences import Occurrences

MAX_INDEXED = 2048
"""Tokens indexed per call, in 0.5 ms: after a long prompt the first drafts come some steps later."""
MIN_FOUND = 3
"""Tokens that must have occurred together before their sequel is proposed: of two the sequel is mostly another."""
WINDOW = 40
"""How far behind the place where the answer left its source it may meet it again: what may be deleted at once."""
MAX_EDIT = 24
"""Tokens after which an edit is no edit any more, but another text."""
MAX_OLD, MAX_NEW = 4, 8
"""Most tokens of a replacement worth expecting again: a name, not a line."""
CERTAIN = 3
"""Tokens copied after which a place in the source is more than a guess."""


class Place(NamedTuple):
    """Where in its source an answer stands: `pending` comes first, then what is at `source`."""

    source: int
    pending: tuple[int, ...] = ()


class Replacement(NamedTuple):
    """Tokens of the source and what the answer said instead; neither is empty."""

    old: tuple[int, ...]
    new: tuple[int, ...]


class Draft(NamedTuple):
    """Tokens that may come next, and how likely they are right."""

    tokens: tuple[int, ...]
    odds: Odds


class Drafter:
    """Follows one sequence. `tokens` is the sequence's own array, to which its owner may only append.

    A draft ends before one of `stop_token_ids`: nothing follows it.
    """

    __slots__ = (
        "_acceptance",
        "_edit_at",
        "_left_at",
        "_met",
        "_num_followed",
        "_occurrences",
        "_place",
        "_replacements",
        "_run",
        "_skip",
        "_stops",
        "_tokens",
    )

    def __init__(self, tokens: "array[int]", stop_token_ids: Container[int] = ()) -> None:
        self._tokens = tokens
        self._stops = stop_token_ids
        self._acceptance = Acceptance()
        self._occurrences = Occurrences(tokens)
        self._num_followed = len(tokens)
        self._place: Place | None = None
        self._run = 0  # tokens copied from there on
        self._left_at: int | None = None  # where the source was left, while an edit lasts
        self._edit_at = 0  # where in tokens that edit begins
        self._met = (0, 0)  # where in the source and in tokens copying was resumed
        self._skip = 1  # tokens of the source that the last edit took away
        self._replacements: dict[int, Replacement] = {}  # by their first old token

    def propose(self, max_tokens: int) -> Draft:
        """Return up to `max_tokens` tokens that may come next, none where nothing tells. Call it once a step."""
        self._acceptance.fade()
        ready = self._catch_up()
        odds = self._acceptance.odds(certain=self._is_certain)
        place = self._place if ready else None
        draft: list[int] = []
        while place is not None and len(draft) < max_tokens:
            token, place = self._next(place, draft)
            if token is None or token in self._stops:
                break
            draft.append(token)
        return Draft(tuple(draft), odds)

    def settle(self, num_drafted: int, num_right: int) -> None:
        """Of what was proposed last, `num_drafted` tokens were tried, and the first `num_right` of them were right."""
        self._acceptance.note(num_drafted, num_right, certain=self._is_certain)

    @property
    def _is_certain(self) -> bool:
        """Whether the place has been confirmed by what was copied from it."""
        return self._run >= CERTAIN

    def _catch_up(self) -> bool:
        """Take note of the tokens since the last call; return whether all are indexed now."""
        if not self._occurrences.extend(MAX_INDEXED):
            return False
        tokens = self._tokens
        for index in range(self._num_followed, len(tokens)):
            self._follow(index)
        self._num_followed = len(tokens)
        if not self._run:
            self._find()
        return True

    def _next(self, place: Place, draft: list[int]) -> tuple[int | None, Place]:
        """Return what is expected at `place`, if anything, and the place behind it. `draft` follows the tokens."""
        source, pending = place
        if pending:
            return pending[0], Place(source, pending[1:])
        tokens = self._tokens
        if source < len(tokens):
            token = tokens[source]
            replacement = self._replacements.get(token)
            if replacement is not None and self._is_at(replacement, source):
                return replacement.new[0], Place(source + len(replacement.old), replacement.new[1:])
            return token, Place(source + 1)
        ahead = source - len(tokens)  # what repeats itself has its source in the draft
        return draft[ahead] if ahead < len(draft) else None, Place(source + 1)

    def _is_at(self, replacement: Replacement, source: int) -> bool:
        old = replacement.old
        return len(old) == 1 or tuple(self._tokens[source : source + len(old)]) == old

    def _follow(self, index: int) -> None:
        """Take note of the token at `index`."""
        place, token = self._place, self._tokens[index]
        if place is None or place.source >= index:
            self._lose()
            return
        expected, behind = self._next(place, [])
        if token == expected:
            self._place = behind
            self._run += 1
            if self._left_at is not None and self._run == CERTAIN:
                self._learn()
        elif not place.pending and token == self._tokens[place.source]:  # this one is not replaced
            del self._replacements[token]
            self._place = Place(place.source + 1)
        else:
            self._leave(place, index)

    def _leave(self, place: Place, index: int) -> None:
        """The answer departs from its source with the token at `index`: look where it may go on."""
        if self._left_at is None:
            if self._run < CERTAIN:
                self._lose()
                return
            self._left_at = place.source
            self._edit_at = index
        elif index - self._edit_at > MAX_EDIT:
            self._lose()
            return
        tokens, token, left_at = self._tokens, self._tokens[index], self._left_at
        self._run = 0
        for source in range(left_at, min(left_at + WINDOW, index)):
            if tokens[source] == token:
                self._met = (source, index)
                self._place = Place(source + 1)
                self._run = 1
                return
        self._met = (left_at + self._skip, index + 1)
        self._place = Place(left_at + self._skip)

    def _learn(self) -> None:
        """The edit is over: remember what it replaced."""
        assert self._left_at is not None
        source, index = self._met
        old = tuple(self._tokens[self._left_at : source])
        new = tuple(self._tokens[self._edit_at : index])
        self._skip = len(old)
        if 0 < len(old) <= MAX_OLD and 0 < len(new) <= MAX_NEW:
            self._replacements[old[0]] = Replacement(old, new)
        self._left_at = None

    def _find(self) -> None:
        """Take another place if the last tokens have occurred before."""
        match = self._occurrences.longest()
        if match is not None and match.length >= MIN_FOUND:
            self._lose()
            self._place = Place(match.end)
            self._run = 1

    def _lose(self) -> None:
        self._place = None
        self._left_at = None
        self._run = 0
