"""A gateway and a remote engine in virtual time, with the limits of `headway.flow` before each.

The gateway is one core: a request that its limit refuses costs it 0.05 ms, one that is read 0.5 ms, a malformed one (its
body is large) 2 ms, one without a valid token 0.3 ms. The engine computes 16 requests at once, each in 0.2 s: 80 a second.
These are assumed, not measured; what is compared is who gets what of them.
"""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from flow_control.load import Arrival
from headway.core.caller import Caller
from headway.core.clock import NS_PER_MS, ManualClock
from headway.core.errors import RateLimited
from headway.flow.config import LimitsConfig
from headway.flow.local import LocalLimits
from headway.flow.shares import RemoteQueue, Ticket
from headway.flow.signals import SIGNALS, Signal

Limiter = Literal["one limit for all", "a static limit each", "dynamic, all places lent", "dynamic"]
LIMITERS: tuple[Limiter, ...] = get_args(Limiter)
"""Static ones have one line before the engine. Of the dynamic ones, one lends places that `high` leaves free."""

NUM_PLACES = 16
MAX_WAITING = 64
SERVICE_NS = 200 * NS_PER_MS
FIRST_TOKEN_NS = 20 * NS_PER_MS
COST_NS = {
    "refused": NS_PER_MS // 20,
    "call": NS_PER_MS // 2,
    "malformed": 2 * NS_PER_MS,
    "unauthorised": NS_PER_MS * 3 // 10,
}
EVERYBODY = Caller(tenant="all", user="all")
PATIENCE_NS = 2_000 * NS_PER_MS
"""Who has no first token by then has gone elsewhere: not served."""


@dataclass(slots=True)
class Group:
    """What became of a group's requests; waits are those to the first token."""

    offered: int = 0
    refused_429: int = 0
    refused_503: int = 0
    answered_4xx: int = 0
    waits_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class World:
    """One run. Events are (time, order, what, whom)."""

    limiter: Limiter
    clock: ManualClock = field(default_factory=ManualClock)
    groups: dict[str, Group] = field(default_factory=lambda: defaultdict(Group))
    gateway_free_ns: int = 0
    gateway_busy_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    events: list[tuple[int, int, str, Any]] = field(default_factory=list)
    came: dict[Ticket, Arrival] = field(default_factory=dict)
    num_events: int = 0
    limits: LocalLimits = field(init=False)
    queue: RemoteQueue = field(init=False)

    def __post_init__(self) -> None:
        static = LimitsConfig(weights=dict.fromkeys(SIGNALS, 0.0))
        self.limits = LocalLimits(LimitsConfig() if self.is_dynamic else static, self.clock)
        self.queue = RemoteQueue(
            lend_high="never" if self.limiter == "dynamic" else "idle",
            num_places=NUM_PLACES,
            max_waiting=MAX_WAITING,
        )

    @property
    def is_dynamic(self) -> bool:
        """Whether limits follow behaviour, and classes and tenants have lines of their own."""
        return self.limiter.startswith("dynamic")

    async def run(self, arrivals: Sequence[Arrival]) -> None:
        """Play everything to its end."""
        for arrival in arrivals:
            self._at(arrival.at_ns, "arrive", arrival)
        while self.events:
            now_ns, _, what, whom = heapq.heappop(self.events)
            self.clock.advance(now_ns - self.clock.now_ns())
            match what:
                case "arrive":
                    await self._arrive(whom)
                case "read":
                    self._send(whom)
                case "first token" if whom in self.queue.running:
                    self.queue.generated(whom, 1, now_ns)
                case "end" if whom in self.queue.running:
                    self.queue.generated(whom, 40, now_ns)
                    self.queue.leave(whom)
                    self._turns()
                case _:
                    pass

    async def _arrive(self, arrival: Arrival) -> None:
        """The gateway takes a request: refuses it, or reads it when it gets to it."""
        group = self.groups[arrival.group]
        group.offered += 1
        caller = EVERYBODY if self.limiter == "one limit for all" else arrival.caller
        try:
            await self.limits.release(await self.limits.admit(caller))
        except RateLimited:
            group.refused_429 += 1
            self._work("refused", arrival)
            return
        done_ns = self._work(arrival.kind, arrival)
        if arrival.kind == "call":
            self._at(done_ns, "read", arrival)
            return
        group.answered_4xx += 1
        await self.limits.note(caller, Signal("malformed" if arrival.kind == "malformed" else "failed_auth"))

    def _work(self, what: str, arrival: Arrival) -> int:
        """Return when the gateway has done a piece of work."""
        self.gateway_free_ns = max(self.gateway_free_ns, self.clock.now_ns()) + COST_NS[what]
        self.gateway_busy_ns[arrival.group] += COST_NS[what]
        return self.gateway_free_ns

    def _send(self, arrival: Arrival) -> None:
        """A request stands before the engine: among its class and tenant, or, statically, in one line."""
        caller = arrival.caller if self.is_dynamic else EVERYBODY
        ticket = self.queue.arrive(caller.service_class, caller.tenant, 100)
        self.came[ticket] = arrival
        self._turns()
        if (gone := self.queue.crowded_out(caller.service_class)) is not None:
            self.queue.leave(gone)
            self.groups[self.came[gone].group].refused_503 += 1

    def _turns(self) -> None:
        now_ns = self.clock.now_ns()
        turns = self.queue.turns(now_ns)
        for ticket in turns.displace:
            arrival = self.came[ticket]
            self.groups[arrival.group].refused_503 += 1
            self.groups[arrival.group].waits_ns.pop()
        for ticket in turns.start:
            arrival = self.came[ticket]
            self.groups[arrival.group].waits_ns.append(now_ns + FIRST_TOKEN_NS - arrival.at_ns)
            self._at(now_ns + FIRST_TOKEN_NS, "first token", ticket)
            self._at(now_ns + SERVICE_NS, "end", ticket)

    def _at(self, at_ns: int, what: str, whom: Any) -> None:
        self.num_events += 1
        heapq.heappush(self.events, (at_ns, self.num_events, what, whom))


def simulate(limiter: Limiter, arrivals: Sequence[Arrival]) -> Mapping[str, Any]:
    """Return what became of each group, and what the gateway's core did for whom."""
    world = World(limiter)
    asyncio.run(world.run(arrivals))
    end_ns = max(world.clock.now_ns(), world.gateway_free_ns)
    return {
        "groups": {name: _figures(world.groups[name]) for name in sorted(world.groups)},
        "gateway_busy": {
            name: round(busy_ns / end_ns, 4) for name, busy_ns in sorted(world.gateway_busy_ns.items())
        },
    }


def _figures(group: Group) -> dict[str, Any]:
    waits = sorted(group.waits_ns)
    served = sum(wait <= PATIENCE_NS for wait in waits)
    return {
        "offered": group.offered,
        "served": served,
        "late": len(waits) - served,
        "refused_429": group.refused_429,
        "refused_503": group.refused_503,
        "answered_4xx": group.answered_4xx,
        "ttft_ms": {
            name: round(waits[min(len(waits) - 1, int(share * len(waits)))] / NS_PER_MS, 1) if waits else None
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
    }
