"""Limits in Redis while it answers, in this process while it does not. It knows neither script nor connection.

Without Redis each gateway grants its part: everybody's limits divided by the last known number of gateways, counted
from the first request that Redis did not answer. What is granted meanwhile is settled here, and Redis is not told of
it later; what Redis had granted is owed to it and settled once it is back (`RedisLimits.pay`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.flow.breaker import Breaker, Phase
from headway.flow.config import LimitsConfig
from headway.flow.limits import Admission, Limits, Reservation, Shown
from headway.flow.local import LocalLimits
from headway.flow.signals import Signal
from headway.flow.terms import terms_of

logger = logging.getLogger("headway.flow")

BEAT_S: Final = 5.0
"""How often a gateway says that it lives: three times before it counts as gone."""

T = TypeVar("T")


class StoreGone(Exception):
    """The store did not answer in time, or answered with an error."""


class Store(Limits, Protocol):
    """Limits that others share, which may be gone: then its calls raise StoreGone."""

    @property
    def num_owed(self) -> int:
        """Calls whose end the store has not confirmed."""
        ...

    def holds(self, admission: Admission) -> bool:
        """Whether the store has anything of a call that must be settled."""
        ...

    def postpone(self, admission: Admission, num_used: int) -> None:
        """A call has ended and the store is not to be asked now: owe it what there is to settle, once."""
        ...

    async def beat(self) -> int:
        """Say that this gateway lives; return how many there are."""
        ...

    async def pay(self) -> None:
        """Tell the store what it is owed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """What metrics show.

    phase          of the breaker: anything but CLOSED means that limits are local and divided
    num_gateways   last known
    num_fallbacks  decisions taken here that were meant for the store
    num_owed       calls whose end the store has not confirmed
    """

    phase: Phase
    num_gateways: int
    num_fallbacks: int
    num_owed: int


class SharedLimits:
    """Asks `store` and, where that is gone, counts here.

    `on_change` is told (True, why) when the breaker opens, (False, "") when the store is asked by all again.
    """

    def __init__(
        self,
        store: Store,
        config: LimitsConfig,
        clock: Clock,
        *,
        on_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        self._store = store
        self._config = config
        self._local = LocalLimits(config, clock)
        self._clock = clock
        self._on_change = on_change
        self._breaker = Breaker()
        self._num_fallbacks = 0
        self._beats: asyncio.Task[None] | None = None

    def state(self) -> SharedState:
        """Return what metrics show."""
        return SharedState(
            phase=self._breaker.phase,
            num_gateways=self._local.num_gateways,
            num_fallbacks=self._num_fallbacks,
            num_owed=self._store.num_owed,
        )

    async def start(self) -> None:
        """Make this gateway known, and keep it known until `aclose`. A store that is gone now may come later."""
        await self.beat()
        self._beats = asyncio.create_task(self._beat_for_ever())

    async def beat(self) -> None:
        """Say once that this gateway lives, learn of how many, and settle what is owed."""
        num_gateways = await self._try(self._store.beat)
        if num_gateways is not None:
            self._local.num_gateways = max(1, num_gateways)
            await self._store.pay()

    async def admit(self, caller: Caller) -> Admission:
        """See `Limits.admit`."""
        admission = await self._try(lambda: self._store.admit(caller))
        return admission or await self._fall_back().admit(caller)

    async def pace(self, caller: Caller) -> None:
        """See `Limits.pace`."""
        if await self._try(lambda: _done(self._store.pace(caller))) is None:
            await self._fall_back().pace(caller)

    async def reserve(self, admission: Admission, num_tokens: int) -> Reservation:
        """See `Limits.reserve`."""
        if admission.place == "local":
            return await self._local.reserve(admission, num_tokens)
        if terms_of(admission.caller, self._config).tokens_per_min is None:
            return Reservation(admission=admission, num_tokens=0, quotas=admission.quotas)
        reservation = await self._try(lambda: self._store.reserve(admission, num_tokens))
        if reservation is not None:
            return reservation
        self._store.postpone(admission, 0)  # from here on the call is ours
        local = self._fall_back()
        return await local.reserve(await local.admit(admission.caller), num_tokens)

    async def settle(self, reservation: Reservation, num_used: int) -> None:
        """See `Limits.settle`: where the call was granted, wherever others are by now."""
        admission = reservation.admission
        if admission.place == "local":
            await self._local.settle(reservation, num_used)
        else:
            await self._end(admission, num_used, lambda: self._store.settle(reservation, num_used))

    async def release(self, admission: Admission) -> None:
        """See `Limits.release`."""
        if admission.place == "local":
            await self._local.release(admission)
        else:
            await self._end(admission, 0, lambda: self._store.release(admission))

    async def note(self, caller: Caller, signal: Signal) -> None:
        """See `Limits.note`."""
        if await self._try(lambda: _done(self._store.note(caller, signal))) is None:
            await self._fall_back().note(caller, signal)

    async def show(self, caller: Caller) -> Shown:
        """See `Limits.show`."""
        shown = await self._try(lambda: self._store.show(caller))
        return shown or await self._fall_back().show(caller)

    async def aclose(self) -> None:
        """Stop beating, settle what is owed if the store answers, and let go of it."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait({self._beats})
        await self._store.pay()
        await self._store.aclose()

    async def _end(self, admission: Admission, num_used: int, end: Callable[[], Awaitable[None]]) -> None:
        """A call ends that the store has granted. Where that holds nothing of it, it is not asked."""
        asked = self._store.holds(admission) and await self._try(lambda: _done(end()))
        if not asked:
            self._store.postpone(admission, num_used)

    def _fall_back(self) -> LocalLimits:
        self._num_fallbacks += 1
        return self._local

    async def _try(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Return what the store says, None where it is gone; raises its refusals."""
        before = self._breaker
        self._breaker, may_ask = before.ask(self._clock.now_ns())
        if not may_ask:
            return None
        try:
            found = await call()
        except StoreGone as error:
            self._move(self._breaker.failed(self._clock.now_ns()), str(error))
            return None
        except asyncio.CancelledError:
            raise
        except Exception:  # a refusal is an answer
            self._move(self._breaker.succeeded(), "")
            raise
        self._move(self._breaker.succeeded(), "")
        return found

    def _move(self, breaker: Breaker, reason: str) -> None:
        before, self._breaker = self._breaker, breaker
        if breaker.phase is Phase.OPEN and before.phase is Phase.CLOSED:
            divided = "limits are counted in this gateway alone, everybody's divided by %d: %s"
            logger.warning(divided, self._local.num_gateways, reason)
        elif breaker.phase is Phase.CLOSED and before.phase is Phase.HALF_OPEN:
            logger.warning("limits are shared by all gateways again")
        else:
            return
        if self._on_change is not None:
            self._on_change(breaker.phase is Phase.OPEN, reason)

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self.beat()


async def _done(work: Awaitable[None]) -> bool:
    await work
    return True
