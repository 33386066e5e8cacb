"""Which API tokens are named on the metrics page: those that are watched, and the busiest of the others. The rest is one.

A page with a series for every token would grow with the number of tokens, and take Prometheus with it. Who is busy is found
with `space_saving`. A name that once stands stays until another token is clearly busier, or its own falls silent: names that
come and go would tear every graph apart.
"""

import re
from collections.abc import Callable, Set
from typing import Final

from headway.obs.space_saving import SpaceSaving

OTHER: Final = "_other"
INVALID: Final = "_invalid"
ANONYMOUS: Final = "_anonymous"

_NAME: Final = re.compile(r"[!-^`-~][!-~]{0,127}")
"""Visible ASCII, and no `_` in front: no id passes for one of the names above."""
_COUNTERS_PER_NAME: Final = 8
"""With 8 counters for each of 32 names, tokens that make 1 call of 256 are found whatever the others do."""
_HALF_LIFE: Final = 16_384
"""Countings after which half of all counts is forgotten: at 100/s under three minutes, at 1/s half a working day."""
_LEAST: Final = 8
"""Countings that make a token worth a name once there are more tokens than counters."""


def is_name(token_id: str) -> bool:
    """Whether a token's id can be its name on the page."""
    return _NAME.fullmatch(token_id) is not None


class TokenNames:
    """Names tokens, and calls `on_leave` with each name that is given up, for its series to be removed."""

    def __init__(self, watched: Set[str], num_top: int, on_leave: Callable[[str], object]) -> None:
        self._watched = watched
        self._num_top = num_top
        self._on_leave = on_leave
        self._counts = SpaceSaving(max(1, num_top * _COUNTERS_PER_NAME))
        self._named: dict[str, None] = {}
        self._bar = 0
        """What the least busy name counted when it was last looked for, so that few tokens need a comparison."""
        self._num_left = _HALF_LIFE

    def name(self, token_id: str | None) -> str:
        """Count `token_id` once, at a call's first token and at its end; return its label.

        "" = nobody was asked for a token, None = what was shown is none of ours.
        """
        if token_id is None:
            return INVALID
        if not token_id:
            return ANONYMOUS
        if token_id in self._watched:
            return token_id
        if token_id not in self._named and not is_name(token_id):
            return OTHER
        self._counts.add(token_id)
        self._num_left -= 1
        if not self._num_left:
            self._forget()
        if token_id in self._named or self._earns_name(token_id):
            self._named[token_id] = None
            return token_id
        return OTHER

    def _earns_name(self, token_id: str) -> bool:
        count = self._counts.guaranteed(token_id)
        if len(self._named) < self._num_top:
            return count >= _LEAST or not self._counts.is_full
        if not self._named or not _ousts(count, self._bar):
            return False
        weakest = min(self._named, key=self._counts.guaranteed)
        self._bar = self._counts.guaranteed(weakest)
        if not _ousts(count, self._bar):
            return False
        self._leave(weakest)
        return True

    def _forget(self) -> None:
        self._num_left = _HALF_LIFE
        self._bar = 0
        self._counts.halve()
        for name in [name for name in self._named if not self._counts.guaranteed(name)]:
            self._leave(name)

    def _leave(self, name: str) -> None:
        del self._named[name]
        self._on_leave(name)


def _ousts(count: int, weakest: int) -> bool:
    """A newcomer must be twice as busy as the name it takes, and that one in turn to come back."""
    return count >= 2 * weakest + _LEAST
