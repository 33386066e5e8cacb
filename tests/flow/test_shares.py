"""Turns before a remote engine, in virtual time, and the gate that carries them out (scenario 11)."""

import asyncio
import heapq
import random
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.caller import Caller
from headway.core.clock import NS_PER_MS, NS_PER_S, ManualClock
from headway.core.errors import Displaced, QueueFull
from headway.core.request import ServiceClass
from headway.flow.gradient import Gradient
from headway.flow.remote import Place, RemoteGate
from headway.flow.shares import RemoteQueue, Ticket, Turns

FIRST_TOKEN_NS, LENGTH_NS = 100 * NS_PER_MS, NS_PER_S
"""Of every simulated call."""


@dataclass
class Simulation:
    """An engine with as many slots as the queue has places; calls in open loop."""

    queue: RemoteQueue = field(default_factory=lambda: RemoteQueue(num_places=8))
    waits: dict[ServiceClass, list[int]] = field(default_factory=dict)
    num_displaced: int = 0
    num_displaced_after_token: int = 0

    def run(self, arrivals: list[tuple[int, ServiceClass, str]]) -> None:
        events: list[tuple[int, int, str, Ticket | tuple[ServiceClass, str]]] = []
        count = 0
        for at_ns, service_class, tenant in arrivals:
            heapq.heappush(events, (at_ns, count, "arrive", (service_class, tenant)))
            count += 1
        came: dict[Ticket, tuple[int, ServiceClass]] = {}
        while events:
            now_ns, _, what, who = heapq.heappop(events)
            if isinstance(who, Ticket):
                if who not in self.queue.running:
                    continue
                if what == "end":
                    self.queue.leave(who)
                else:
                    self.queue.generated(who, 10, now_ns)
            else:
                came[self.queue.arrive(*who, num_prompt_tokens=100)] = (now_ns, who[0])
            turns = self.queue.turns(now_ns)
            for ticket in turns.displace:
                self.num_displaced += 1
                self.num_displaced_after_token += ticket.has_token
            for ticket in turns.start:
                at_ns, service_class = came[ticket]
                self.waits.setdefault(service_class, []).append(now_ns - at_ns)
                for delay_ns, event in ((FIRST_TOKEN_NS, "token"), (LENGTH_NS, "end")):
                    count += 1
                    heapq.heappush(events, (now_ns + delay_ns, count, event, ticket))


def poisson(
    rate: float, service_class: ServiceClass, tenants: list[str], *, seconds: int = 20, seed: int = 0
) -> list[tuple[int, ServiceClass, str]]:
    draw, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        found.append((int(at_s * NS_PER_S), service_class, draw.choice(tenants)))
    return found


@pytest.mark.parametrize("num_users", [1, 1000])
def test_high_is_served_at_once_under_a_flood_of_low_from_one_user_or_from_many(num_users: int) -> None:
    """Scenario 11: the flood alone is five times what the engine can do."""
    simulation = Simulation()
    flood = poisson(40, "low", [f"flood {number}" for number in range(num_users)])
    simulation.run(flood + poisson(1.0, "high", ["vip"], seed=1))
    waits = sorted(simulation.waits["high"])
    assert len(waits) >= 10
    assert waits[int(0.99 * len(waits))] <= 50 * NS_PER_MS
    assert simulation.num_displaced_after_token == 0
    assert len(simulation.waits["low"]) > 80  # and the flood is served with what is left


def test_high_finds_a_place_by_ending_a_low_one_without_a_token() -> None:
    queue = RemoteQueue(num_places=2, lend_high="idle")
    first, second = queue.arrive("low", "a", 10), queue.arrive("low", "a", 10)
    assert queue.turns(0).start == (first, second)
    queue.generated(first, 1, 0)
    high = queue.arrive("high", "b", 10)
    turns = queue.turns(NS_PER_MS)
    assert (turns.start, turns.displace) == ((high,), (second,))
    queue.arrive("high", "b", 10)
    assert queue.turns(2 * NS_PER_MS).start == ()  # the other has a token: it is read by somebody


def test_normal_is_never_ended() -> None:
    queue = RemoteQueue(num_places=1, lend_high="idle")
    queue.arrive("normal", "a", 10)
    queue.turns(0)
    queue.arrive("high", "b", 10)
    assert queue.turns(NS_PER_MS).displace == ()


def test_the_places_of_high_are_kept_for_it() -> None:
    queue = RemoteQueue(num_places=8)
    others = [queue.arrive("normal", "a", 10) for _ in range(20)]
    assert queue.turns(0).start == tuple(others[:4])
    high = [queue.arrive("high", "b", 10) for _ in range(6)]
    assert queue.turns(0) == Turns(start=tuple(high[:4]))
    queue.leave(others[0])
    assert queue.turns(0).start == (high[4],)  # normal has its half already


def test_one_place_is_for_everybody() -> None:
    queue = RemoteQueue(num_places=1)
    low = queue.arrive("low", "a", 10)
    assert queue.turns(0).start == (low,)


def test_a_flood_of_a_better_class_leaves_a_worse_one_its_share() -> None:
    simulation = Simulation(RemoteQueue(num_places=8, lend_high="idle"))
    simulation.run(poisson(40, "normal", ["flood"]) + poisson(1, "low", ["small"], seed=1))
    small = sorted(simulation.waits["low"])
    assert small[len(small) // 2] < 3 * NS_PER_S
    assert simulation.num_displaced == 0


def test_a_tenant_with_many_calls_does_not_hold_up_one_with_a_few() -> None:
    queue = RemoteQueue(num_places=1, lend_high="idle")
    first, *_ = [queue.arrive("normal", "flood", 10) for _ in range(100)]
    small = queue.arrive("normal", "small", 10)
    assert queue.turns(0).start == (first,)
    queue.generated(first, 50, NS_PER_S)
    queue.turns(NS_PER_S)
    queue.leave(first)
    assert queue.turns(NS_PER_S).start == (small,)


def test_whoever_floods_pushes_out_himself() -> None:
    queue = RemoteQueue(num_places=0, max_waiting=10)
    small = queue.arrive("normal", "small", 10)
    flood = [queue.arrive("normal", "flood", 10) for _ in range(9)]
    assert queue.crowded_out("normal") is None
    later = queue.arrive("normal", "later", 10)
    assert queue.crowded_out("normal") is flood[-1]
    queue.leave(flood[-1])
    for ticket in (small, later, *flood[:-1]):
        queue.leave(ticket)
    assert queue.num_waiting == 0
    assert queue.crowded_out("high") is None


happenings = st.one_of(
    st.tuples(
        st.just("arrive"), st.sampled_from(["high", "normal", "low"]), st.sampled_from(["a", "b", "c"])
    ),
    st.tuples(st.just("token"), st.integers(0, 20)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("places"), st.integers(1, 6)),
    st.tuples(st.just("wait"), st.integers(1, 2000)),
)


@given(st.lists(happenings, max_size=80), st.sampled_from(["idle", "never"]))
def test_whatever_happens_each_call_starts_once_and_none_that_is_read_is_ended(
    script: list[tuple[object, ...]], lend_high: Literal["idle", "never"]
) -> None:
    queue = RemoteQueue(lend_high=lend_high, num_places=4, max_waiting=5)
    now_ns, num_arrived, ended, started, most = 0, 0, 0, list[Ticket](), 4
    for what in script:
        running = sorted(queue.running, key=lambda ticket: ticket.order)
        match what:
            case ("arrive", "high" | "normal" | "low" as service_class, str(tenant)):
                queue.arrive(service_class, tenant, 10)
                num_arrived += 1
                if gone := queue.crowded_out(service_class):
                    queue.leave(gone)
                    ended += 1
            case ("token", int(index)) if index < len(running):
                queue.generated(running[index], 3, now_ns)
            case ("end", int(index)) if index < len(running):
                queue.leave(running[index])
                ended += 1
            case ("places", int(count)):
                queue.num_places, most = count, max(len(running), count)
            case ("wait", int(ms)):
                now_ns += ms * NS_PER_MS
            case _:
                pass
        turns = queue.turns(now_ns)
        assert all(ticket.rank == 2 and not ticket.has_token for ticket in turns.displace)
        started += turns.start
        ended += len(turns.displace)
        assert len(queue.running) <= most
        assert queue.running.isdisjoint(turns.displace)
        assert num_arrived == ended + len(queue.running) + queue.num_waiting
    assert len(set(started)) == len(started)
    for _ in range(num_arrived):  # whoever waits comes to his turn as others end
        for ticket in list(queue.running):
            queue.leave(ticket)
        queue.turns(now_ns)
    assert (queue.num_waiting, queue.running) == (0, set())


def test_leaving_twice_leaves_once() -> None:
    queue = RemoteQueue(num_places=2, lend_high="idle")
    one = queue.arrive("normal", "a", 10)
    queue.turns(0)
    queue.leave(one)
    queue.leave(one)
    assert (queue.running, queue.num_waiting) == (set(), 0)


# ---- the gate ----

HIGH, LOW = Caller(tenant="vip", service_class="high"), Caller(tenant="bulk", service_class="low")
OTHER = Caller(tenant="other", service_class="low")


def gate(num_places: int, max_waiting: int = 10) -> RemoteGate:
    gradient = Gradient(limit=float(num_places), min_limit=num_places, max_limit=num_places)
    return RemoteGate(ManualClock(), lend_high="idle", gradient=gradient, max_waiting=max_waiting)


async def hold(of: RemoteGate, caller: Caller, held: "asyncio.Queue[Place]", ending: asyncio.Event) -> None:
    async with of.place(caller, 10) as place:
        held.put_nowait(place)
        await ending.wait()
        place.generated(1)


@pytest.mark.anyio
async def test_a_displaced_call_is_told_and_ends_with_a_503() -> None:
    found, held, ending = gate(1), asyncio.Queue[Place](), asyncio.Event()
    low = asyncio.create_task(hold(found, LOW, held, ending))
    place = await held.get()
    high = asyncio.create_task(hold(found, HIGH, held, ending))
    await held.get()
    assert place.displaced.is_set()
    ending.set()
    with pytest.raises(Displaced) as caught:
        await low
    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (503, "displaced", 1.0)
    await high
    assert (found.num_waiting, found.num_places) == (0, 1)


@pytest.mark.anyio
async def test_waiting_calls_that_give_up_leave_nothing_behind() -> None:
    found, held, ending = gate(1), asyncio.Queue[Place](), asyncio.Event()
    first = asyncio.create_task(hold(found, LOW, held, ending))
    await held.get()
    waiting = [asyncio.create_task(hold(found, LOW, held, ending)) for _ in range(5)]
    await asyncio.sleep(0)
    assert found.num_waiting == 5
    for task in waiting[:4]:
        task.cancel()
    await asyncio.wait(waiting[:4])
    assert found.num_waiting == 1
    ending.set()
    await first
    await waiting[4]
    async with found.place(LOW, 10):
        pass


@pytest.mark.anyio
async def test_too_many_that_wait_are_refused() -> None:
    found, held, ending = gate(1, max_waiting=1), asyncio.Queue[Place](), asyncio.Event()
    tasks = [asyncio.create_task(hold(found, LOW, held, ending)) for _ in range(2)]
    await asyncio.sleep(0)
    assert found.num_waiting == 1
    with pytest.raises(QueueFull):
        async with found.place(LOW, 10):
            pass
    ending.set()
    await asyncio.gather(*tasks)


@pytest.mark.anyio
async def test_who_waits_can_be_crowded_out_by_another_tenant() -> None:
    found, held, ending = gate(1, max_waiting=2), asyncio.Queue[Place](), asyncio.Event()
    tasks = [asyncio.create_task(hold(found, LOW, held, ending)) for _ in range(3)]
    await asyncio.sleep(0)
    other = asyncio.create_task(hold(found, OTHER, held, ending))
    await asyncio.wait({tasks[2]})
    assert isinstance(tasks[2].exception(), QueueFull)
    ending.set()
    await asyncio.gather(tasks[0], tasks[1], other)


@pytest.mark.anyio
async def test_first_tokens_teach_the_gate_how_many_calls_there_may_be() -> None:
    clock = ManualClock()
    found = RemoteGate(clock, gradient=Gradient(limit=1.0))
    for _ in range(20):
        async with found.place(HIGH, 10) as place:
            clock.advance(NS_PER_MS)
            place.generated(1)
    assert found.num_places > 1
    before = found.num_places
    for _ in range(10):
        found.refused()
    assert found.num_places < before
