"""How often a sequence's drafts turn out right: what the length of the next one rests on. It knows no tokens."""

from typing import NamedTuple

FADING = 0.99
"""What an outcome counts after the next step: half after 69; what failed is worth a try again some day."""
TRIED, FOLLOWED = (0.8, 1.2), (3.6, 0.4)
"""Outcomes (right, wrong) believed beforehand: of a first token at a new place, and of one that goes on copying."""


class Odds(NamedTuple):
    """Chances that a draft's first token is right, and that each further one is if all before it are."""

    first: float
    further: float


class Acceptance:
    """Counts the outcomes of one sequence's drafts, apart for new places and for those that were confirmed."""

    __slots__ = ("_followed_right", "_followed_wrong", "_tried_right", "_tried_wrong")

    def __init__(self) -> None:
        self._tried_right = self._tried_wrong = self._followed_right = self._followed_wrong = 0.0

    def note(self, num_drafted: int, num_right: int, *, certain: bool) -> None:
        """Of `num_drafted` tokens the first `num_right` were right; `certain`: the place was confirmed before."""
        if not num_drafted:
            return
        wrong = num_right < num_drafted
        if certain:
            self._followed_right += num_right
            self._followed_wrong += wrong
        elif num_right:
            self._tried_right += 1
            self._followed_right += num_right - 1
            self._followed_wrong += wrong
        else:
            self._tried_wrong += 1

    def fade(self) -> None:
        """A step has passed: let what was counted matter less."""
        self._tried_right *= FADING
        self._tried_wrong *= FADING
        self._followed_right *= FADING
        self._followed_wrong *= FADING

    def odds(self, *, certain: bool) -> Odds:
        """Return the chances of the next draft."""
        right, wrong = self._followed_right + FOLLOWED[0], self._followed_wrong + FOLLOWED[1]
        further = right / (right + wrong)
        if certain:
            return Odds(further, further)
        right, wrong = self._tried_right + TRIED[0], self._tried_wrong + TRIED[1]
        return Odds(right / (right + wrong), further)
