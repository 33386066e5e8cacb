"""What limits promise (scenarios 1, 2, 3, 5), kept in memory; the same sequences in Redis: test_local_and_redis."""

import asyncio
import random

import pytest

from headway.core.caller import Caller, CallerLimits
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import HeadwayError, OverBudget, RateLimited, TokensExhausted, TooManyConcurrent
from headway.core.quota import Quotas
from headway.flow.calls import limited
from headway.flow.config import LimitsConfig
from headway.flow.limits import Limits
from headway.flow.local import HARD_BOUND, LocalLimits
from headway.flow.signals import Signal

USER = Caller(tenant="acme", user="ada")
CONFIG = LimitsConfig(requests_per_s=10, floor_per_s=1, tokens_per_min=6000, max_concurrent=5)

pytestmark = pytest.mark.anyio


def limits(config: LimitsConfig = CONFIG) -> tuple[LocalLimits, ManualClock]:
    clock = ManualClock()
    return LocalLimits(config, clock), clock


async def left(of: Limits, caller: Caller = USER) -> Quotas:
    return (await of.show(caller)).quotas


async def test_of_a_hundred_calls_at_once_exactly_as_many_pass_as_may() -> None:
    found, _ = limits(LimitsConfig(requests_per_s=1000, max_concurrent=5))
    ending, passed, refused = asyncio.Event(), 0, 0

    async def call() -> None:
        nonlocal passed, refused
        try:
            async with limited(found, USER):
                passed += 1
                await ending.wait()
        except TooManyConcurrent:
            refused += 1
            if refused == 95:
                ending.set()

    await asyncio.gather(*(call() for _ in range(100)))
    assert (passed, refused) == (5, 95)
    assert (await found.show(USER)).num_calls == 0


async def test_a_pace_takes_of_the_rate_and_neither_needs_nor_holds_a_place() -> None:
    found, _ = limits()
    for _ in range(5):
        await found.admit(USER)
    for _ in range(5):
        await found.pace(USER)
    assert (await found.show(USER)).num_calls == 5
    with pytest.raises(RateLimited):
        await found.pace(USER)


async def test_a_request_refused_for_its_rate_burns_nothing_else() -> None:
    found, _ = limits()
    for _ in range(10):
        await found.release(await found.admit(USER))
    with pytest.raises(RateLimited) as caught:
        await found.admit(USER)
    assert caught.value.code == "rate_limited"
    assert caught.value.retry_after_s == pytest.approx(0.1)
    assert caught.value.quotas.requests is not None
    assert caught.value.quotas.requests.remaining == 0
    shown = await found.show(USER)
    assert shown.num_calls == 0
    assert shown.quotas.tokens is not None
    assert shown.quotas.tokens.remaining == 6000


async def test_a_request_refused_for_being_one_too_many_burns_nothing_else() -> None:
    found, _ = limits()
    for _ in range(5):
        await found.admit(USER)
    before = await left(found)
    for _ in range(20):
        with pytest.raises(TooManyConcurrent) as caught:
            await found.admit(USER)
        assert (caught.value.status, caught.value.code) == (429, "too_many_concurrent")
        assert caught.value.retry_after_s
    assert await left(found) == before


@pytest.mark.parametrize(
    ("wanted", "error", "code"),
    [(4000, TokensExhausted, "tokens_exhausted"), (6001, OverBudget, "tokens_over_limit")],
)
async def test_a_request_refused_for_its_tokens_burns_nothing_else(
    wanted: int, error: type[HeadwayError], code: str
) -> None:
    found, _ = limits()
    running = await found.reserve(await found.admit(USER), 3000)
    before = await left(found)
    for _ in range(20):
        with pytest.raises(error) as caught:
            await found.reserve(await found.admit(USER), wanted)
        assert caught.value.code == code
    shown = await found.show(USER)
    assert (shown.quotas, shown.num_calls) == (before, 1)
    await found.settle(running, 0)


async def test_a_wait_that_was_told_is_long_enough() -> None:
    found, clock = limits()
    await found.settle(await found.reserve(await found.admit(USER), 5000), 5000)
    with pytest.raises(TokensExhausted) as caught:
        await found.reserve(await found.admit(USER), 2000)
    assert caught.value.retry_after_s == pytest.approx(10)
    clock.advance(10 * NS_PER_S)
    await found.reserve(await found.admit(USER), 2000)


async def test_the_balance_is_exact_after_a_thousand_random_cancels() -> None:
    config = LimitsConfig(requests_per_s=1e6, tokens_per_min=1_000_000_000)
    found, _ = limits(config)
    draw = random.Random(7)
    used = 0

    async def call(prompt: int, most: int) -> None:
        nonlocal used
        async with limited(found, USER) as running:
            await asyncio.sleep(0)
            await running.reserve(prompt + most)
            await asyncio.sleep(0)
            running.num_used = prompt
            used += prompt
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
                running.num_used += 1
                used += 1

    for _ in range(1000):
        task = asyncio.create_task(call(draw.randrange(1, 500), draw.randrange(1, 500)))
        for _ in range(draw.randrange(7)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    tokens = (await left(found)).tokens
    assert tokens is not None
    assert used > 1000
    assert tokens.remaining == 1_000_000_000 - used
    assert (await found.show(USER)).num_calls == 0


async def test_settling_twice_refunds_once() -> None:
    found, _ = limits()
    reservation = await found.reserve(await found.admit(USER), 1000)
    await found.settle(reservation, 400)
    after = await left(found)
    await found.settle(reservation, 0)
    await found.release(reservation.admission)
    assert await left(found) == after


async def test_tokens_are_counted_whatever_characters_they_stand_for() -> None:
    """Scenario 5: a budget by characters, at four a token, would let a Chinese prompt pass with a quarter of its tokens."""
    found, _ = limits()
    text = "自然语言处理" * 250
    num_tokens = len(text)  # as many tokenizers have it: one a character
    assert num_tokens // 4 < 1500
    for _ in range(4):
        await found.settle(await found.reserve(await found.admit(USER), num_tokens), num_tokens)
    with pytest.raises(TokensExhausted):
        await found.reserve(await found.admit(USER), num_tokens)


async def test_who_behaves_badly_is_slowed_told_why_and_nobody_else_is() -> None:
    found, clock = limits(LimitsConfig())
    for _ in range(20):
        await found.note(USER, Signal("malformed"))
    shown = await found.show(USER)
    assert shown.requests_per_s == pytest.approx(70)
    assert [(c.signal, c.words) for c in shown.why] == [("malformed", "malformed requests: 20.0 of late")]
    other = await found.show(Caller(tenant="acme", user="eve"))
    assert (other.requests_per_s, other.why) == (100, ())
    clock.advance(1200 * NS_PER_S)
    assert (await found.show(USER)).requests_per_s > 99


async def test_users_of_one_name_in_two_tenants_are_two() -> None:
    found, _ = limits()
    for _ in range(10):
        await found.release(await found.admit(USER))
    await found.admit(Caller(tenant="other", user="ada"))
    with pytest.raises(RateLimited):
        await found.admit(USER)


async def test_a_callers_own_limits_count() -> None:
    found, _ = limits()
    caller = Caller(user="slow", limits=CallerLimits(requests_per_s=1))
    admission = await found.admit(caller)
    assert admission.quotas.requests is not None
    assert admission.quotas.requests.limit == 1
    with pytest.raises(RateLimited):
        await found.admit(caller)


async def test_a_token_with_limits_of_its_own_has_an_account_of_its_own() -> None:
    found, clock = limits()
    small = Caller(
        tenant="acme", user="ada", token_id="tok_s", limits=CallerLimits(requests_per_s=1, tokens_per_min=60)
    )
    large = Caller(tenant="acme", user="ada", token_id="tok_l", limits=CallerLimits(tokens_per_min=60_000))
    await found.release(await found.admit(small))
    with pytest.raises(RateLimited):
        await found.admit(small)
    held = await found.reserve(await found.admit(large), 50_000)
    await found.settle(held, 50_000)
    for _ in range(3):
        clock.advance(NS_PER_S)
        await found.release(await found.admit(small))
        assert (await left(found, large)).tokens.remaining >= 10_000  # type: ignore[union-attr]
    shared = [Caller(tenant="acme", user="ada", token_id=name) for name in ("tok_a", "tok_b")]
    for number in range(10):
        await found.release(await found.admit(shared[number % 2]))
    with pytest.raises(RateLimited):
        await found.admit(shared[0])


async def test_without_a_budget_nothing_is_reserved() -> None:
    found, _ = limits(LimitsConfig())
    reservation = await found.reserve(await found.admit(USER), 10**9)
    assert reservation.num_tokens == 0
    assert reservation.quotas.tokens is None
    await found.settle(reservation, 10**9)


async def test_users_whose_state_is_a_new_ones_again_are_forgotten_first() -> None:
    found, clock = limits(LimitsConfig(max_users=100))
    bad = Caller(user="bad")
    for _ in range(40):
        await found.note(bad, Signal("malformed"))
    for number in range(99):
        await found.release(await found.admit(Caller(user=str(number))))
    clock.advance(60 * NS_PER_S)
    for number in range(1000):
        await found.release(await found.admit(Caller(user=f"later {number}")))
        clock.advance(NS_PER_S // 10)
    assert (await found.show(bad)).why != ()
    assert len(found) < HARD_BOUND * 100


async def test_memory_is_bounded_whatever_is_known_of_users_and_no_running_call_is_forgotten() -> None:
    found, _ = limits(LimitsConfig(max_users=10, max_concurrent=1))
    await found.admit(USER)
    for number in range(200):
        await found.note(Caller(user=str(number)), Signal("failed_auth"))
    assert len(found) <= HARD_BOUND * 10
    with pytest.raises(TooManyConcurrent):
        await found.admit(USER)
