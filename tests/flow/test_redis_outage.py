"""A real Redis that gateways share: killed, paused, started again mid-run (scenario 14); calls cancelled on their way."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.core.caller import Caller
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import RateLimited, TooManyConcurrent
from headway.flow.breaker import Phase
from headway.flow.calls import limited
from headway.flow.config import LimitsConfig
from headway.flow.limits import Reservation
from headway.flow.redis import MAX_RENEWED, RedisLimits
from headway.flow.redis_pipe import connect
from headway.flow.shared import SharedLimits
from support.redis_server import RedisServer, needs_redis, redis_server

pytestmark = [needs_redis, pytest.mark.anyio]

USER = Caller(tenant="acme", user="ada")
CONFIG = LimitsConfig(requests_per_s=1e6, tokens_per_min=1_000_000, max_concurrent=5000)
NOW_US = 1_700_000_000_000_000
PATIENT_S = 30.0
DEADLINE_S = 0.1
"""While Redis is paused each call takes that long; when it is back a slow machine may miss it, and tries again."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def store(redis: RedisServer, *, deadline_s: float = PATIENT_S, config: LimitsConfig = CONFIG) -> RedisLimits:
    return RedisLimits(config, connect(redis.url), time_us=lambda: NOW_US, deadline_s=deadline_s)


async def balance(redis: RedisServer) -> tuple[int, int]:
    """Tokens left of the user's budget, and his calls that run, as Redis has them."""
    asking = store(redis)
    shown = await asking.show(USER)
    await asking.aclose()
    assert shown.quotas.tokens is not None
    return shown.quotas.tokens.remaining, shown.num_calls


async def until_shared(limits: SharedLimits, clock: ManualClock) -> None:
    for _ in range(100):
        clock.advance(20 * NS_PER_S)
        await limits.beat()
        if limits.state().phase is Phase.CLOSED and not limits.state().num_owed:
            return
    raise AssertionError("Redis is back and nobody asks it")


async def test_of_a_hundred_calls_at_two_gateways_exactly_as_many_pass_as_may(redis: RedisServer) -> None:
    config = LimitsConfig(requests_per_s=1e6, max_concurrent=5)
    gateways = [store(redis, config=config) for _ in range(2)]

    async def call(number: int) -> bool:
        try:
            await gateways[number % 2].admit(USER)
        except TooManyConcurrent:
            return False
        return True

    assert sum(await asyncio.gather(*(call(number) for number in range(100)))) == 5
    for gateway in gateways:
        await gateway.aclose()


async def test_two_gateways_know_of_each_other_and_have_one_rate(redis: RedisServer) -> None:
    config = LimitsConfig(requests_per_s=4, floor_per_s=1)
    one, two = store(redis, config=config), store(redis, config=config)
    assert (await one.beat(), await two.beat(), await one.beat()) == (1, 2, 2)
    for gateway in (one, two, one, two):
        await gateway.admit(USER)
    with pytest.raises(RateLimited):
        await one.admit(USER)
    await one.aclose()
    await two.aclose()


async def test_the_balance_is_exact_after_a_thousand_random_cancels_on_the_way_to_redis(
    redis: RedisServer,
) -> None:
    limits, draw, used = store(redis), random.Random(3), 0

    async def call(num_tokens: int) -> None:
        nonlocal used
        async with limited(limits, USER) as running:
            await running.reserve(num_tokens)
            running.num_used = num_tokens // 2
            used += running.num_used
            await asyncio.sleep(0)

    async def cancelled(number: int) -> None:
        task = asyncio.create_task(call(number % 500 + 1))
        for _ in range(draw.randrange(120)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    for begin in range(0, 1000, 20):
        await asyncio.gather(*(cancelled(begin + number) for number in range(20)))
    await limits.aclose()
    assert limits.num_owed == 0
    assert used > 0
    assert await balance(redis) == (1_000_000 - used, 0)


async def test_a_paused_redis_costs_nobody_an_answer_and_gives_nothing_back_twice(redis: RedisServer) -> None:
    clock = ManualClock()
    at_redis = store(redis, deadline_s=DEADLINE_S)
    limits = SharedLimits(at_redis, CONFIG, clock)
    await limits.beat()
    before: list[Reservation] = []
    while len(before) < 5:  # a machine that is too busy for the deadline grants some of them here
        reservation = await limits.reserve(await limits.admit(USER), 1000)
        if reservation.admission.place == "shared":
            before.append(reservation)
        clock.advance(20 * NS_PER_S)
    redis.pause()
    meanwhile = [await limits.reserve(await limits.admit(USER), 1000) for _ in range(5)]
    assert {reservation.admission.place for reservation in meanwhile} == {"local"}
    assert limits.state().phase is Phase.OPEN
    for reservation in before:
        await limits.settle(reservation, 300)
    assert limits.state().num_owed >= 5
    redis.resume()
    await until_shared(limits, clock)
    for reservation in [*before, *meanwhile]:
        await limits.settle(reservation, 0)
    assert await balance(redis) == (1_000_000 - 5 * 300, 0)
    await limits.aclose()


async def test_whatever_is_cancelled_while_redis_comes_and_goes_the_balance_is_exact(
    redis: RedisServer,
) -> None:
    clock, draw = ManualClock(), random.Random(11)
    limits = SharedLimits(store(redis, deadline_s=DEADLINE_S), CONFIG, clock)
    used = {"local": 0, "shared": 0}
    num_calls = 0

    async def call(num_tokens: int) -> None:
        async with limited(limits, USER) as running:
            await running.reserve(num_tokens)
            running.num_used = num_tokens // 2
            used[running.place] += running.num_used
            for _ in range(draw.randrange(30)):
                await asyncio.sleep(0)

    async def worker() -> None:
        nonlocal num_calls
        for _ in range(30):
            num_calls += 1
            if num_calls % 75 == 25:
                redis.pause()
            elif num_calls % 75 == 50:
                redis.resume()
            if num_calls % 15 == 0:
                clock.advance(2 * NS_PER_S)
            task = asyncio.create_task(call(draw.randrange(1, 500)))
            if draw.random() < 0.5:
                for _ in range(draw.randrange(60)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or task.exception() is None

    await asyncio.gather(*(worker() for _ in range(10)))
    redis.resume()
    await until_shared(limits, clock)
    await limits.aclose()
    assert limits.state().num_owed == 0
    assert min(used.values()) > 0
    assert await balance(redis) == (1_000_000 - used["shared"], 0)


async def test_a_redis_killed_and_started_again_serves_calls_from_before_and_after(
    redis: RedisServer,
) -> None:
    clock = ManualClock()
    limits = SharedLimits(store(redis, deadline_s=PATIENT_S), CONFIG, clock)
    await limits.beat()
    before = await limits.reserve(await limits.admit(USER), 1000)
    assert before.admission.place == "shared"
    redis.kill()
    places = set()
    for _ in range(10):
        reservation = await limits.reserve(await limits.admit(USER), 1000)
        places.add(reservation.admission.place)
        await limits.settle(reservation, 10)
    assert places == {"local"}
    await limits.settle(before, 100)
    redis.start()
    await until_shared(limits, clock)
    assert await balance(redis) == (
        1_000_000,
        0,
    )  # it has forgotten everything, and nothing is given back twice
    after = await limits.reserve(await limits.admit(USER), 1000)
    assert after.admission.place == "shared"
    await limits.settle(after, 400)
    assert await balance(redis) == (1_000_000 - 400, 0)
    await limits.aclose()


async def test_a_redis_that_takes_nothing_more_is_one_that_is_gone(redis: RedisServer) -> None:
    clock = ManualClock()
    limits = SharedLimits(store(redis), CONFIG, clock)
    full = connect(redis.url)
    await full.config_set("maxmemory", "1")
    assert (await limits.admit(USER)).place == "local"
    await full.config_set("maxmemory", "0")
    await full.aclose()
    assert (await limits.admit(USER)).place == "shared"
    await limits.aclose()


async def test_a_redis_that_is_not_there_yet_is_no_error(redis: RedisServer) -> None:
    redis.kill()
    clock = ManualClock()
    limits = SharedLimits(store(redis), CONFIG, clock)
    await limits.start()
    assert (await limits.admit(USER)).place == "local"
    redis.start()
    await until_shared(limits, clock)
    assert (await limits.admit(USER)).place == "shared"
    await limits.aclose()


async def test_places_of_more_calls_than_one_script_takes_are_renewed(redis: RedisServer) -> None:
    now_us, count = NOW_US, MAX_RENEWED + 1
    client = connect(redis.url)
    gateway = RedisLimits(CONFIG, client, time_us=lambda: now_us, deadline_s=PATIENT_S)
    await asyncio.gather(*(gateway.admit(USER) for _ in range(count)))
    for _ in range(2):
        now_us += 40_000_000
        await gateway.beat()
    assert (await gateway.show(USER)).num_calls == count
    await gateway.aclose()


async def test_what_a_dead_gateway_held_is_free_again_after_its_lease(redis: RedisServer) -> None:
    now_us = NOW_US
    config = LimitsConfig(max_concurrent=2, tokens_per_min=600)

    def gateway() -> RedisLimits:
        return RedisLimits(config, connect(redis.url), time_us=lambda: now_us, deadline_s=PATIENT_S)

    dead, alive = gateway(), gateway()
    await dead.reserve(await dead.admit(USER), 600)
    kept = await alive.admit(USER)
    for _ in range(2):
        now_us += 40_000_000
        await alive.beat()
    await alive.admit(USER)  # the dead one's place; its own is renewed
    with pytest.raises(TooManyConcurrent):
        await alive.admit(USER)
    await alive.release(kept)
    shown = await alive.show(USER)
    assert shown.num_calls == 1
    assert shown.quotas.tokens is not None
    assert shown.quotas.tokens.remaining == 600  # charged in full, and refilled since
    await dead.aclose()
    await alive.aclose()
