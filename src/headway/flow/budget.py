"""Tokens a minute: reserved before they are computed, settled with what was used. It knows no clock and no caller.

The budget is a bucket that holds one minute's tokens and refills evenly. A refund puts back what was reserved and not
used, up to a full bucket: who settles when it has long refilled gets no second one. So nobody uses more than two
minutes' tokens in any one minute (a full bucket, and what it refills), as with every bucket.

Who used more than he reserved is charged the rest, into debt if need be: the tokens were computed.

Reserving before instead of charging afterwards: a hundred calls at once cannot all pass a budget of five (TensorZero and
Kuadrant, issue 2263, came to the same; gateways that charge afterwards document that they overshoot).
"""

from enum import Enum
from typing import Final

from headway.flow.rate import Bucket

SECONDS_PER_MIN = 60


class Verdict(Enum):
    """What becomes of a wish for tokens."""

    GRANTED = "granted"
    LATER = "later"
    """There will be enough: 429, with the wait."""
    NEVER = "never"
    """It exceeds the whole budget: 400, as a client that retries a 429 would do so for ever."""


def reserve(bucket: Bucket, num_tokens: int, whole: int) -> tuple[Bucket, Verdict, int]:
    """Return the bucket, what becomes of the wish, and for LATER how many nanoseconds to wait.

    `whole` is the budget of which the bucket is a gateway's part, where it is: what exceeds the part but not the whole is
    granted by a full bucket, which then owes.
    """
    if num_tokens > whole:
        return bucket, Verdict.NEVER, 0
    if wait_ns := bucket.wait_ns(min(num_tokens, bucket.burst)):
        return bucket, Verdict.LATER, wait_ns
    return bucket.put(-num_tokens), Verdict.GRANTED, 0


def settle(bucket: Bucket, num_reserved: int, num_used: int) -> Bucket:
    """Return the bucket, charged with what was used instead of what was reserved."""
    return bucket.put(num_reserved - num_used)


class State(Enum):
    """Where a reservation is in its life."""

    HELD = "held"
    SETTLED = "settled"


class Move(Enum):
    """What may happen to one."""

    SETTLE = "settle"
    """Its call ended; charged with what it used."""
    LAPSE = "lapse"
    """Nobody settled it for so long that its gateway must be gone; charged in full."""


TRANSITIONS: Final[dict[tuple[State, Move], State]] = {
    (State.HELD, Move.SETTLE): State.SETTLED,
    (State.HELD, Move.LAPSE): State.SETTLED,
}
"""All that may happen: nothing follows SETTLED, so nothing is refunded twice. What comes again is ignored, as it must
be: the answer to a first try may have been lost with its connection."""


class Holds:
    """Owns a caller's reservations that are held, by call."""

    __slots__ = ("_amounts",)

    def __init__(self) -> None:
        self._amounts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._amounts)

    def hold(self, call_id: str, num_tokens: int) -> None:
        """A reservation was granted."""
        self._amounts[call_id] = num_tokens

    def move(self, call_id: str, move: Move) -> int | None:
        """Return the tokens that were held if the move is allowed, else None."""
        state = State.HELD if call_id in self._amounts else State.SETTLED
        if (state, move) not in TRANSITIONS:
            return None
        return self._amounts.pop(call_id)
