"""Who goes to a remote engine next, by class shares and fairness between tenants. It knows no clock and waits for nobody.

The turns are those of our own engine (`engine/policies/turns.py` over `engine/accounts.py`). Two things differ, as a
remote engine cannot be made to set a stream aside and take it up again:

- places are kept for `high` by its share, and lent to nobody, where `lend_high` is "never";
- where `high` within its share finds no place, a request of `low` that has no token yet is ended for it, the latest first.

Lines are bounded by class, so that no flood of a worse one refuses a better one. Where one is full, the latest of the tenant
with most in it goes (`lines.py`).
"""

from dataclasses import dataclass, field
from typing import Literal

from headway.core.request import ServiceClass
from headway.engine.accounts import HIGH, LOW, RANKS, Accounts
from headway.engine.policies.turns import equals, next_rank
from headway.flow.lines import Lines


@dataclass(slots=True, eq=False)
class Ticket:
    """One request before a remote engine; `order` is that of arrival. Owned by the queue that gave it."""

    order: int
    rank: int
    tenant: str
    num_prompt_tokens: int
    has_token: bool = False


@dataclass(frozen=True, slots=True)
class Turns:
    """What is to be done: let these go, end those."""

    start: tuple[Ticket, ...] = ()
    displace: tuple[Ticket, ...] = ()


@dataclass(slots=True)
class RemoteQueue:
    """Owns who waits for one remote engine and who is there."""

    shares: tuple[int, int, int] = (50, 30, 20)
    lend_high: Literal["idle", "never"] = "never"
    num_places: int = 8
    max_waiting: int = 1024
    running: set[Ticket] = field(default_factory=set)
    _waiting: dict[int, Lines[str, Ticket]] = field(default_factory=dict)
    _accounts: Accounts = field(init=False)
    _num_tickets: int = 0
    _busy_since_ns: int | None = None

    def __post_init__(self) -> None:
        self._accounts = Accounts(self.shares)

    def crowded_out(self, service_class: ServiceClass) -> Ticket | None:
        """Return who has to go, as one too many of a class waits; perhaps who came last. It has not gone yet."""
        lines = self._lines(RANKS[service_class])
        return lines.crowded_out() if len(lines) > self.max_waiting else None

    def arrive(self, service_class: ServiceClass, tenant: str, num_prompt_tokens: int) -> Ticket:
        """Return the ticket of a request that came; it waits until `turns` lets it go, or it is crowded out."""
        self._num_tickets += 1
        ticket = Ticket(self._num_tickets, RANKS[service_class], tenant, num_prompt_tokens)
        self._lines(ticket.rank).append(tenant, ticket)
        self._accounts.enter(tenant)
        return ticket

    def turns(self, now_ns: int) -> Turns:
        """Let go who may go now; what is returned has been done here."""
        self._count_busy(now_ns)
        started: list[Ticket] = []
        displaced: list[Ticket] = []
        while (ticket := self._next(now_ns)) is not None:
            if len(self.running) >= self.num_places:
                victim = self._victim(ticket, now_ns)
                if victim is None:
                    break
                self.leave(victim)
                displaced.append(victim)
            self._lines(ticket.rank).remove(ticket.tenant, ticket)
            self.running.add(ticket)
            self._accounts.charge(ticket.rank, ticket.tenant, ticket.num_prompt_tokens, 0, now_ns)
            started.append(ticket)
        self._count_busy(now_ns)
        return Turns(tuple(started), tuple(displaced))

    def generated(self, ticket: Ticket, num_tokens: int, now_ns: int) -> None:
        """The engine has sent tokens: from the first on a request is ended for nobody."""
        ticket.has_token = True
        self._accounts.charge(ticket.rank, ticket.tenant, 0, num_tokens, now_ns)

    def leave(self, ticket: Ticket) -> None:
        """A request ended, or gave up waiting; the second time nothing happens."""
        if ticket in self.running:
            self.running.remove(ticket)
            self._accounts.leave(ticket.tenant)
        elif self._lines(ticket.rank).remove(ticket.tenant, ticket):
            self._accounts.leave(ticket.tenant)

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return sum(map(len, self._waiting.values()))

    def _lines(self, rank: int) -> Lines[str, Ticket]:
        return self._waiting.setdefault(rank, Lines())

    def _next(self, now_ns: int) -> Ticket | None:
        """Return who is next, None where nobody may go before another one ends."""
        has_room = self._has_room_for_others()
        ranks = [rank for rank, lines in self._waiting.items() if len(lines) and (rank == HIGH or has_room)]
        if not ranks:
            return None
        lines = self._waiting[next_rank(ranks, self._use(now_ns))]
        served = {name: self._accounts.served.get(name, 0) for name in lines}
        names = equals(served, self._accounts.lead(now_ns))
        return min((lines.first(name) for name in names), key=lambda ticket: ticket.order)

    def _has_room_for_others(self) -> bool:
        """Whether a place is free that is not kept for high."""
        if self.lend_high == "idle":
            return len(self.running) < self.num_places
        num_high = sum(ticket.rank == HIGH for ticket in self.running)
        num_kept = max(num_high, self.num_places * self.shares[HIGH] // sum(self.shares))
        return len(self.running) - num_high < self.num_places - num_kept

    def _victim(self, ticket: Ticket, now_ns: int) -> Ticket | None:
        if ticket.rank != HIGH or self._use(now_ns)[HIGH] >= 1:
            return None
        low = [t for t in self.running if t.rank == LOW and not t.has_token]
        return max(low, key=lambda t: t.order, default=None)

    def _use(self, now_ns: int) -> list[float]:
        if not self._accounts.lead(
            now_ns
        ):  # places were free all the time: nobody had what another one wanted
            return [0.0] * len(self.shares)
        return self._accounts.use(now_ns)

    def _count_busy(self, now_ns: int) -> None:
        """Account for the time in which all places were taken: what the engine would have done in the rest is spare."""
        if self._busy_since_ns is not None:
            self._accounts.note_busy(max(0, now_ns - self._busy_since_ns), now_ns)
        self._busy_since_ns = now_ns if len(self.running) >= self.num_places else None
