"""What the gateway asks of limits: one protocol, kept in memory by `local.py` and in Redis by `redis.py`.

    admission = await limits.admit(caller)                  # one request of the rate, one place; or 429
    reservation = await limits.reserve(admission, tokens)   # prompt + n × max_tokens; or 429, and nothing stays taken
    ...
    await limits.settle(reservation, used)                  # in `finally`: refunds the rest and frees the place

`calls.py` is that as a context manager. Order and rollback are part of each decision: a request that is refused has used
nothing up.
"""

from typing import Literal, NoReturn, Protocol

import msgspec

from headway.core.caller import Caller
from headway.core.clock import NS_PER_S
from headway.core.errors import OverBudget, RateLimited, TokensExhausted, TooManyConcurrent
from headway.core.quota import Quotas
from headway.flow.signals import Signal
from headway.flow.standing import Contribution

Place = Literal["local", "shared"]
"""Where a call is accounted: in this process, or for all gateways."""

CONCURRENT_RETRY_S = 1.0
"""A place is free when another call ends, which nobody can foretell."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was let in. `quotas`: what its caller has left; `risk`: 0 to 2, what set his rate."""

    call_id: str
    caller: Caller
    quotas: Quotas
    risk: float = 0.0
    place: Place = "local"


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that a call may use; `num_tokens` is 0 where its caller has no budget."""

    admission: Admission
    num_tokens: int
    quotas: Quotas


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What operators see of a user (`headway token show`).

    risk                     0 to 2
    requests_per_s           what he may send now, of `base_per_s`
    why                      what the risk is made of, the largest first
    num_calls                running now; 0 where they are not limited
    """

    risk: float
    requests_per_s: float
    base_per_s: float
    why: tuple[Contribution, ...]
    num_calls: int
    quotas: Quotas


class Limits(Protocol):
    """Limits of all callers. Every call is safe to cancel at any point: what it took by then is given back."""

    async def admit(self, caller: Caller) -> Admission:
        """Let a call in; raises RateLimited, TooManyConcurrent, and then has taken nothing."""
        ...

    async def pace(self, caller: Caller) -> None:
        """Take one request of the rate for what is no call, and no place; raises RateLimited."""
        ...

    async def reserve(self, admission: Admission, num_tokens: int) -> Reservation:
        """Take tokens from the caller's budget, once for a call.

        Raises TokensExhausted and OverBudget: then the call has left and its request of the rate is given back.
        """
        ...

    async def settle(self, reservation: Reservation, num_used: int) -> None:
        """The call has ended: charge what it used, refund the rest, free its place. Does nothing the second time."""
        ...

    async def release(self, admission: Admission) -> None:
        """A call ends that has reserved nothing: free its place. Does nothing the second time."""
        ...

    async def note(self, caller: Caller, signal: Signal) -> None:
        """Remember what a caller did."""
        ...

    async def show(self, caller: Caller) -> Shown:
        """Return how a caller stands; changes nothing."""
        ...

    async def aclose(self) -> None:
        """Finish what is on its way and let go of connections."""
        ...


def refuse_rate(wait_ns: int, rate: float, quotas: Quotas) -> NoReturn:
    """Raise RateLimited."""
    raise RateLimited(
        f"You may send {rate:.3g} requests a second at present; wait {_seconds(wait_ns)} s and send fewer.",
        retry_after_s=wait_ns / NS_PER_S,
        quotas=quotas,
    )


def refuse_concurrent(max_concurrent: int, quotas: Quotas) -> NoReturn:
    """Raise TooManyConcurrent."""
    raise TooManyConcurrent(
        f"You may have {max_concurrent} calls at once, and they all run; wait for one to end.",
        retry_after_s=CONCURRENT_RETRY_S,
        quotas=quotas,
    )


def refuse_tokens(num_tokens: int, whole: int, wait_ns: int, quotas: Quotas) -> NoReturn:
    """Raise TokensExhausted."""
    raise TokensExhausted(
        f"This request may take {num_tokens} tokens, more than you have left of {whole} a minute; wait "
        f"{_seconds(wait_ns)} s, or ask for fewer with max_tokens.",
        retry_after_s=wait_ns / NS_PER_S,
        quotas=quotas,
    )


def refuse_for_good(num_tokens: int, whole: int) -> NoReturn:
    """Raise OverBudget."""
    raise OverBudget(
        f"This request may take {num_tokens} tokens, and you may use {whole} in a whole minute: shorten the prompt or ask "
        "for fewer with max_tokens.",
        param="max_tokens",
    )


def _seconds(wait_ns: int) -> str:
    return f"{max(0.001, wait_ns / NS_PER_S):.3g}"
