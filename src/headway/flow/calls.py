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


class LimitedCall:
    """A call that was let in. `num_used`: tokens it has used by now, 0 at first."""

    __slots__ = ("_limits", "_reservation", "admission", "num_used")

    def __init__(self, limits: Limits, admission: Admission) -> None:
        self._limits = limits
        self._reservation: Reservation | None = None
        self.admission = admission
        self.num_used = 0

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
        """Settle; `limited` does so."""
        if self._reservation is not None:
            await self._limits.settle(self._reservation, self.num_used)
        else:
            await self._limits.release(self.admission)


@asynccontextmanager
async def limited(limits: Limits, caller: Caller) -> AsyncIterator[LimitedCall]:
    """Let a call in and settle it at the end; raises RateLimited, TooManyConcurrent."""
    call = LimitedCall(limits, await limits.admit(caller))
    try:
        yield call
    finally:
        await call.end()
