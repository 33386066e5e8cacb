"""One call's limits as a context: whatever ends it, what it took is settled once. It knows no store.

async with limited(limits, caller) as call:
    await call.reserve(num_prompt_tokens + max_tokens)
    ...
    call.num_used = num_prompt_tokens + num_generated   # as it becomes known: what counts if the client leaves now
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.core.caller import Caller
from headway.core.quota import Quotas
from headway.flow.limits import Admission, Limits, Place, Reservation
from headway.flow.signals import Signal


class LimitedCall:
    """A call that was let in.

    num_used     tokens it has used by now, 0 at first
    abandoned    whether its caller left its answer, or read it to the end; None = neither, or it is not known
    """

    __slots__ = ("_limits", "_reservation", "abandoned", "admission", "num_used")

    def __init__(self, limits: Limits, admission: Admission) -> None:
        self._limits = limits
        self._reservation: Reservation | None = None
        self.admission = admission
        self.num_used = 0
        self.abandoned: bool | None = None

    @property
    def place(self) -> Place:
        """Where the call is accounted; a store that goes between two decisions leaves it to this gateway."""
        return (self._reservation.admission if self._reservation else self.admission).place

    @property
    def quotas(self) -> Quotas:
        """What the caller has left, as of the last decision on this call."""
        return (self._reservation or self.admission).quotas

    async def reserve(self, num_tokens: int) -> None:
        """Take what the call may use at most; once. Raises TokensExhausted, OverBudget."""
        self._reservation = await self._limits.reserve(self.admission, num_tokens)

    async def end(self) -> None:
        """Settle, and remember how its caller took the answer; `limited` does so."""
        if self._reservation is not None:
            await self._limits.settle(self._reservation, self.num_used)
        else:
            await self._limits.release(self.admission)
        if self.abandoned:
            await self._limits.note(self.admission.caller, Signal("abandoned"))
        elif self.abandoned is False and self.admission.risk > 0:  # else there is nothing to make up for
            await self._limits.note(self.admission.caller, Signal("finished"))


@asynccontextmanager
async def limited(limits: Limits, caller: Caller) -> AsyncIterator[LimitedCall]:
    """Let a call in and settle it at the end; raises RateLimited, TooManyConcurrent."""
    call = LimitedCall(limits, await limits.admit(caller))
    try:
        yield call
    finally:
        await call.end()
