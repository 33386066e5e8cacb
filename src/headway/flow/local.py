"""Limits kept in this process's memory. It knows no other gateway.

Bounded: beyond `max_users` the ones unused for longest are forgotten where that changes no decision (their state is a
new user's again). Where the oldest are none of those, up to twice as many are kept; from there on the oldest without
a running call goes, whatever is known of him: a bounded memory is worth more than one user's history.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import replace

from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.flow.account import Account
from headway.flow.config import LimitsConfig
from headway.flow.limits import Admission, Reservation, Shown
from headway.flow.signals import Signal
from headway.flow.standing import weights_of
from headway.flow.terms import Terms, terms_of

AccountKey = tuple[str, str, str]
"""`Caller.account`."""
_LOOK_AT = 8
"""Oldest users looked at when one too many comes: each new one may cost that, not more."""
HARD_BOUND = 2


class LocalLimits:
    """Owns every user's account. With `num_gateways` each user has his part of his limits."""

    def __init__(self, config: LimitsConfig, clock: Clock, *, num_gateways: int = 1) -> None:
        self._config = config
        self._clock = clock
        self._weights = weights_of(config.weights)
        self._accounts: OrderedDict[AccountKey, Account] = OrderedDict()
        self._call_ids = itertools.count(1)
        self.num_gateways = num_gateways

    def __len__(self) -> int:
        """Users remembered."""
        return len(self._accounts)

    async def admit(self, caller: Caller) -> Admission:
        """See `Limits.admit`."""
        terms, now_ns = self._terms(caller), self._clock.now_ns()
        call_id = str(next(self._call_ids))
        found, quotas = self._account(caller, now_ns).admit(call_id, terms, self._weights, now_ns)
        return Admission(call_id=call_id, caller=caller, quotas=quotas, risk=found)

    async def pace(self, caller: Caller) -> None:
        """See `Limits.pace`."""
        terms, now_ns = replace(self._terms(caller), max_concurrent=None), self._clock.now_ns()
        account, call_id = self._account(caller, now_ns), str(next(self._call_ids))
        account.admit(call_id, terms, self._weights, now_ns)
        account.settle(call_id, 0, terms, now_ns)

    async def reserve(self, admission: Admission, num_tokens: int) -> Reservation:
        """See `Limits.reserve`."""
        terms, now_ns = self._terms(admission.caller), self._clock.now_ns()
        account = self._account(admission.caller, now_ns)
        held, quotas = account.reserve(admission.call_id, num_tokens, terms, now_ns)
        return Reservation(admission=admission, num_tokens=held, quotas=quotas)

    async def settle(self, reservation: Reservation, num_used: int) -> None:
        """See `Limits.settle`."""
        self._end(reservation.admission, num_used)

    async def release(self, admission: Admission) -> None:
        """See `Limits.release`."""
        self._end(admission, 0)

    async def note(self, caller: Caller, signal: Signal) -> None:
        """See `Limits.note`."""
        now_ns = self._clock.now_ns()
        self._account(caller, now_ns).note(signal, self._weights, now_ns)

    async def show(self, caller: Caller) -> Shown:
        """See `Limits.show`."""
        terms, now_ns = self._terms(caller), self._clock.now_ns()
        account = self._accounts.get(caller.account) or Account(now_ns)
        return account.show(terms, self._weights, now_ns)

    async def aclose(self) -> None:
        """There is nothing to let go of."""

    def _end(self, admission: Admission, num_used: int) -> None:
        caller = admission.caller
        account = self._accounts.get(caller.account)
        if account is not None:
            account.settle(admission.call_id, num_used, self._terms(caller), self._clock.now_ns())

    def _terms(self, caller: Caller) -> Terms:
        return terms_of(caller, self._config, self.num_gateways)

    def _account(self, caller: Caller, now_ns: int) -> Account:
        key = caller.account
        account = self._accounts.get(key)
        if account is not None:
            self._accounts.move_to_end(key)
            return account
        self._make_room(now_ns)
        account = self._accounts[key] = Account(now_ns)
        return account

    def _make_room(self, now_ns: int) -> None:
        while len(self._accounts) >= self._config.max_users:
            key = next((key for key in self._oldest() if self._accounts[key].is_fresh(now_ns)), None)
            if key is None and len(self._accounts) >= HARD_BOUND * self._config.max_users:
                key = next((key for key in self._accounts if self._accounts[key].is_idle), None)
            if key is None:
                return
            del self._accounts[key]

    def _oldest(self) -> Iterator[AccountKey]:
        return itertools.islice(self._accounts, _LOOK_AT)
