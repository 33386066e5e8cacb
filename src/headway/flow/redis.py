"""Limits kept in Redis, for several gateways: one script per decision (`decide.lua`), each within a deadline.

Times are the server's. It knows nothing of what to do without Redis: then StoreGone is raised, and `shared.py` decides.

What a call may have taken although its answer never came, cancelled or too late, is owed: it is settled with nothing
used, again until that is answered. Ids are the gateway's own, and settling twice does nothing, so nothing is given
back twice.
"""

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace
from redis.asyncio import Redis

from headway.core.caller import Caller
from headway.flow.config import LimitsConfig
from headway.flow.limits import (
    Admission,
    Reservation,
    Shown,
    refuse_concurrent,
    refuse_for_good,
    refuse_rate,
    refuse_tokens,
)
from headway.flow.redis_pipe import RedisPipe
from headway.flow.redis_script import (
    PREFIX,
    Answer,
    arguments,
    keys,
    read_answer,
    script,
    script_sha,
)
from headway.flow.shared import StoreGone
from headway.flow.signals import Signal
from headway.flow.standing import Standing, digest, risk, weights_of, why
from headway.flow.terms import Terms, terms_of

DEADLINE_S: Final = 0.05
"""Of a decision: a request that has waited for so long has lost more than a shared count is worth."""
MAX_OWED: Final = 10_000
"""Beyond that the oldest lapses by itself: places after a minute, tokens by refilling."""
MAX_RENEWED: Final = 1000
"""Calls in one script: Lua unpacks 8,000 arguments at most, and others wait meanwhile."""
GATEWAY_S: Final = 15
"""A gateway that was not heard of for so long is gone."""

_BEAT: Final = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], tonumber(time[1]) + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1])
redis.call('EXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZCARD', KEYS[1])
"""


@dataclass(frozen=True, slots=True)
class Debt:
    """A call to settle. `num_reserved` None = it has reserved nothing, as far as is known."""

    caller: Caller
    call_id: str
    num_reserved: int | None = None
    num_used: int = 0


class RedisLimits:
    """Asks Redis. `time_us`: the time to decide by, for tests; None = the server's."""

    def __init__(
        self,
        config: LimitsConfig,
        client: "Redis",
        *,
        time_us: Callable[[], int] | None = None,
        deadline_s: float = DEADLINE_S,
        gateway_id: str | None = None,
    ) -> None:
        self._config = config
        self._weights = weights_of(config.weights)
        source = script(self._weights)
        self._sha = script_sha(source)
        self._pipe = RedisPipe(client, source, deadline_s)
        self._time_us = time_us
        self._gateway_id = gateway_id or secrets.token_hex(6)
        self._call_numbers = itertools.count(1)
        self._open: dict[str, Debt] = {}
        self._owed: deque[Debt] = deque(maxlen=MAX_OWED)
        self._tasks: set[asyncio.Task[bool]] = set()

    @property
    def num_owed(self) -> int:
        """Calls to settle that Redis has not confirmed."""
        return len(self._owed)

    # Limits

    async def admit(self, caller: Caller) -> Admission:
        """See `Limits.admit`; raises StoreGone."""
        terms = self._terms(caller)
        debt = Debt(caller, f"{self._gateway_id}-{next(self._call_numbers)}")
        answer = await self._take(debt, terms, "admit", debt.call_id)
        if answer.verdict == "rate":
            refuse_rate(answer.requests.wait_ns(1.0), answer.requests.rate, answer.quotas)
        if answer.verdict == "calls":
            refuse_concurrent(terms.max_concurrent or 0, answer.quotas)
        self._open[debt.call_id] = debt
        found = risk(Standing(0, answer.levels), self._weights)
        return Admission(
            call_id=debt.call_id, caller=caller, quotas=answer.quotas, risk=found, place="shared"
        )

    async def pace(self, caller: Caller) -> None:
        """See `Limits.pace`; raises StoreGone, and then may have taken it."""
        terms = replace(
            self._terms(caller), max_concurrent=None
        )  # so no place is taken, and none to give back
        answer = read_answer(await self._ask(caller, terms, "admit", ""), terms)
        if answer.verdict == "rate":
            refuse_rate(answer.requests.wait_ns(1.0), answer.requests.rate, answer.quotas)

    async def reserve(self, admission: Admission, num_tokens: int) -> Reservation:
        """See `Limits.reserve`; raises StoreGone, and then the call has left."""
        caller, call_id = admission.caller, admission.call_id
        terms = self._terms(caller)
        if terms.tokens_per_min is None:
            return Reservation(admission=admission, num_tokens=0, quotas=admission.quotas)
        debt = Debt(caller, call_id, num_tokens)
        self._open.pop(call_id, None)
        answer = await self._take(debt, terms, "reserve", call_id, str(num_tokens))
        whole = terms.whole_tokens_per_min
        if answer.verdict == "never":
            refuse_for_good(num_tokens, whole)
        if answer.verdict == "later" and answer.tokens is not None:
            wait_ns = answer.tokens.wait_ns(min(float(num_tokens), answer.tokens.burst))
            refuse_tokens(num_tokens, whole, wait_ns, answer.quotas)
        self._open[call_id] = debt
        return Reservation(admission=admission, num_tokens=num_tokens, quotas=answer.quotas)

    async def settle(self, reservation: Reservation, num_used: int) -> None:
        """See `Limits.settle`; raises StoreGone, and then it is owed."""
        await self._end(reservation.admission, num_used)

    async def release(self, admission: Admission) -> None:
        """See `Limits.release`; raises StoreGone, and then it is owed."""
        await self._end(admission, 0)

    async def note(self, caller: Caller, signal: Signal) -> None:
        """See `Limits.note`; raises StoreGone."""
        value = digest(signal.value) if signal.value else ""
        await self._ask(caller, self._terms(caller), "note", signal.kind, value)

    async def show(self, caller: Caller) -> Shown:
        """See `Limits.show`; raises StoreGone."""
        terms = self._terms(caller)
        answer = read_answer(await self._ask(caller, terms, "show"), terms)
        standing = Standing(0, answer.levels)
        return Shown(
            risk=risk(standing, self._weights),
            requests_per_s=answer.requests.rate,
            base_per_s=terms.base,
            why=tuple(why(standing, self._weights)),
            num_calls=answer.num_calls,
            quotas=answer.quotas,
        )

    async def aclose(self) -> None:
        """Wait for what is on its way, each within its deadline, and close the connection."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._pipe.aclose()

    # Housekeeping

    def holds(self, admission: Admission) -> bool:
        """Whether Redis has anything of a call that must be settled."""
        debt = self._open.get(admission.call_id)
        return debt is not None and self._is_counted(debt)

    def postpone(self, admission: Admission, num_used: int) -> None:
        """A call has ended and Redis is not to be asked now: what there is to settle is owed."""
        if debt := self._closed(admission, num_used):
            self._owed.append(debt)

    async def beat(self) -> int:
        """Say that this gateway lives and renew its calls' places; return how many gateways there are.

        Raises StoreGone.
        """
        num_gateways = await self._pipe.ask(
            "EVAL", _BEAT, "1", f"{PREFIX}:gateways", self._gateway_id, str(GATEWAY_S)
        )
        by_user: dict[str, list[Debt]] = {}
        for debt in self._open.values():
            if self._terms(debt.caller).max_concurrent is not None:
                by_user.setdefault(keys(debt.caller)[1], []).append(debt)
        for debts in by_user.values():
            caller = debts[0].caller
            for begin in range(0, len(debts), MAX_RENEWED):
                ids = [debt.call_id for debt in debts[begin : begin + MAX_RENEWED]]
                await self._ask(caller, self._terms(caller), "renew", *ids)
        return int(num_gateways)

    async def pay(self) -> None:
        """Settle what is owed, the oldest first, until Redis fails to answer."""
        while self._owed:
            debt = self._owed.popleft()
            if not await self._settled(debt):
                return

    # Inside

    def _terms(self, caller: Caller) -> Terms:
        return terms_of(caller, self._config)

    async def _take(self, debt: Debt, terms: Terms, *operation: str) -> Answer:
        """Return the answer to a decision that takes something; where it does not come, `debt` is owed."""
        try:
            return read_answer(await self._ask(debt.caller, terms, *operation), terms)
        except StoreGone:
            self._owed.append(debt)
            raise
        except asyncio.CancelledError:
            self._start(self._settled(debt))
            raise

    async def _end(self, admission: Admission, num_used: int) -> None:
        debt = self._closed(admission, num_used)
        if debt is not None and not await asyncio.shield(self._start(self._settled(debt))):
            raise StoreGone("Redis has not confirmed the end of a call")

    def _closed(self, admission: Admission, num_used: int) -> Debt | None:
        """Return what there is to settle of a call that ends now, None where it has ended or holds nothing."""
        debt = self._open.pop(admission.call_id, None)
        if debt is None or not self._is_counted(debt):
            return None
        return Debt(debt.caller, debt.call_id, debt.num_reserved, num_used)

    def _is_counted(self, debt: Debt) -> bool:
        return debt.num_reserved is not None or self._terms(debt.caller).max_concurrent is not None

    async def _settled(self, debt: Debt) -> bool:
        """Settle; return whether Redis has confirmed it. If not it is owed."""
        reserved = "" if debt.num_reserved is None else str(debt.num_reserved)
        operation = ("settle", debt.call_id, reserved, str(debt.num_used))
        try:
            await self._ask(debt.caller, self._terms(debt.caller), *operation)
        except asyncio.CancelledError:
            self._owed.append(debt)
            raise
        except StoreGone:
            self._owed.append(debt)
            return False
        return True

    async def _ask(self, caller: Caller, terms: Terms, operation: str, *own: str) -> Any:
        now = "" if self._time_us is None else str(self._time_us())
        words = (*keys(caller), operation, now, *arguments(terms), *own)
        return await self._pipe.ask("EVALSHA", self._sha, "3", *words)

    def _start(self, work: Coroutine[Any, Any, bool]) -> "asyncio.Task[bool]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
