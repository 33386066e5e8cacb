"""The same sequence of decisions in memory and in Redis comes to the same: one semantics, two places."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.core.caller import Caller, CallerLimits
from headway.core.clock import ManualClock
from headway.core.errors import HeadwayError
from headway.flow.config import LimitsConfig
from headway.flow.limits import Admission, Limits, Reservation
from headway.flow.local import LocalLimits
from headway.flow.redis import RedisLimits
from headway.flow.redis_pipe import connect
from headway.flow.redis_script import time_us
from headway.flow.signals import Signal
from support.redis_server import RedisServer, needs_redis, redis_server

pytestmark = needs_redis

START_NS = 1_700_000_000_000_000_000
CONFIG = LimitsConfig(requests_per_s=4, floor_per_s=1, burst_s=2, tokens_per_min=600, max_concurrent=3)
CALLERS = [
    Caller(tenant="t", user="u"),
    Caller(tenant="t", user="v", limits=CallerLimits(requests_per_s=50, tokens_per_min=6000)),
    Caller(tenant="t", user="v", token_id="tok_v", limits=CallerLimits(requests_per_s=2, tokens_per_min=60)),
]

callers = st.sampled_from(CALLERS)
steps = st.one_of(
    st.tuples(st.just("admit"), callers),
    st.tuples(st.just("reserve"), st.integers(0, 9), st.integers(0, 700)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.integers(0, 400)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(
        st.just("note"),
        callers,
        st.builds(
            Signal,
            st.sampled_from(["failed_auth", "malformed", "abandoned", "finished", "fingerprint", "region"]),
            st.sampled_from(["", "a", "b", "c"]),
        ),
        st.integers(1, 30),
    ),
    st.tuples(st.just("pace"), callers),
    st.tuples(st.just("show"), callers),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 999, 250_000, 1_000_000, 7_654_321, 59_000_000])),
    st.tuples(st.just("burst"), callers, st.sampled_from([3, 90])),
)


@dataclass
class Driver:
    """Plays steps to one kind of limits and remembers what was said."""

    limits: Limits
    admissions: list[Admission] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    said: list[object] = field(default_factory=list)

    async def play(self, step: tuple[object, ...]) -> None:
        match step:
            case ("burst", Caller() as caller, int(count)):
                for _ in range(count):
                    await self._play(("admit", caller))
                    if self.admissions:
                        await self._play(("release", len(self.admissions) - 1))
            case _:
                await self._play(step)

    async def _play(self, step: tuple[object, ...]) -> None:
        try:
            match step:
                case ("admit", Caller() as caller):
                    await self._admit(caller)
                case ("reserve", int(which), int(count)) if which < len(self.admissions):
                    reservation = await self.limits.reserve(self.admissions.pop(which), count)
                    self.reservations.append(reservation)
                    self.said.append((reservation.num_tokens, reservation.quotas))
                case ("settle", int(which), int(used)) if which < len(self.reservations):
                    await self.limits.settle(self.reservations[which], used)  # stays: may be settled again
                case ("release", int(which)) if which < len(self.admissions):
                    await self.limits.release(self.admissions[which])
                case ("note", Caller() as caller, Signal() as signal, int(times)):
                    for _ in range(times):
                        await self.limits.note(caller, signal)
                case ("pace", Caller() as caller):
                    await self.limits.pace(caller)
                case ("show", Caller() as caller):
                    self.said.append(await self.limits.show(caller))
                case _:
                    pass
        except HeadwayError as error:
            quotas = getattr(error, "quotas", None)
            self.said.append((error.code, error.message, error.retry_after_s, quotas))

    async def _admit(self, caller: Caller) -> None:
        admission = await self.limits.admit(caller)
        self.admissions.append(admission)
        self.said.append((admission.risk, admission.quotas))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@given(st.lists(steps, max_size=60))
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_steps_are_answered_alike(redis: RedisServer, script: list[tuple[object, ...]]) -> None:
    asyncio.run(play_both(redis, script))


FIRST = CALLERS[0]
BY_HAND: dict[str, list[tuple[object, ...]]] = {
    "a budget taken to the last token": [("admit", FIRST), ("reserve", 0, 600), ("admit", FIRST)],
    "a request given back": [
        ("admit", FIRST),
        ("reserve", 0, 600),
        ("admit", FIRST),
        ("reserve", 0, 1),
        *[("admit", FIRST)] * 9,
    ],
    "no burst for who is always busy": [
        *[("burst", FIRST, 90)] * 16,
        ("wait", 20_000_000),
        ("burst", FIRST, 3),
        ("show", FIRST),
    ],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_random_steps_rarely_meet_is_answered_alike(redis: RedisServer, name: str) -> None:
    asyncio.run(play_both(redis, BY_HAND[name]))


async def play_both(redis: RedisServer, script: list[tuple[object, ...]]) -> None:
    clock = ManualClock(START_NS)
    client = connect(redis.url)
    await client.flushdb()
    shared = RedisLimits(CONFIG, client, time_us=lambda: time_us(clock.now_ns()), deadline_s=30)
    one, two = Driver(LocalLimits(CONFIG, clock)), Driver(shared)
    try:
        for step in script:
            if step[0] == "wait":
                clock.advance(int(str(step[1])) * 1000)
                await shared.beat()  # no wait is as long as a lease
                continue
            await one.play(step)
            await two.play(step)
            assert two.said == one.said
        for caller in CALLERS:
            assert await two.limits.show(caller) == await one.limits.show(caller)
    finally:
        await shared.aclose()


def test_a_script_that_redis_has_forgotten_is_loaded_again(redis: RedisServer) -> None:
    async def run() -> None:
        client = connect(redis.url)
        limits = RedisLimits(CONFIG, client, deadline_s=30)
        await limits.admit(CALLERS[0])
        await client.script_flush()
        await limits.admit(CALLERS[0])
        await limits.aclose()

    asyncio.run(run())


HOUR_US = 3_600_000_000


class Clock:
    """A server's clock that can be set, in microseconds."""

    def __init__(self) -> None:
        self.us = START_NS // 1000

    def now_us(self) -> int:
        return self.us


def test_a_clock_that_is_set_back_stops_neither_refilling_nor_forgetting_nor_leases(
    redis: RedisServer,
) -> None:
    async def run() -> None:
        clock, client = Clock(), connect(redis.url)
        await client.flushdb()
        limits = RedisLimits(CONFIG, client, time_us=clock.now_us, deadline_s=30)
        ada = CALLERS[0]
        await limits.note(ada, Signal("malformed"))
        for _ in range(CONFIG.max_concurrent or 0):
            await limits.reserve(await limits.admit(ada), 200)
        with pytest.raises(HeadwayError):
            await limits.admit(ada)
        before = await limits.show(ada)
        clock.us -= HOUR_US
        assert await limits.show(ada) == before  # nothing is given for it
        clock.us += 120_000_000  # longer than a lease, which nobody has renewed
        after = await limits.show(ada)
        assert after.risk < before.risk
        assert after.quotas.tokens is not None
        assert after.quotas.tokens.remaining == CONFIG.tokens_per_min
        await limits.admit(ada)
        await limits.aclose()

    asyncio.run(run())


def test_a_clock_that_wavers_counts_no_moment_twice(redis: RedisServer) -> None:
    async def run() -> None:
        clock, client = Clock(), connect(redis.url)
        await client.flushdb()
        limits = RedisLimits(CONFIG, client, time_us=clock.now_us, deadline_s=30)
        for _ in range(8):  # all there are
            await limits.pace(CALLERS[0])
        for _ in range(20):
            clock.us -= 200_000
            with pytest.raises(HeadwayError):
                await limits.pace(CALLERS[0])
            clock.us += 200_000
        await limits.aclose()

    asyncio.run(run())


def test_the_keys_of_a_decision_share_a_hash_tag_and_name_nobody(redis: RedisServer) -> None:
    async def run() -> list[str]:
        client = connect(redis.url)
        await client.flushdb()
        limits = RedisLimits(CONFIG, client, deadline_s=30)
        caller = Caller(tenant="acme", user="secret{}name")
        await limits.reserve(await limits.admit(caller), 10)
        found: list[str] = [str(key) async for key in client.scan_iter()]
        lives = [await client.ttl(key) for key in found]
        await limits.aclose()
        assert all(0 < life <= 14_400 for life in lives)
        return found

    found = asyncio.run(run())
    assert len(found) == 3
    assert len({key[key.index("{") : key.index("}") + 1] for key in found}) == 1
    assert "secret" not in "".join(found)
