"""The adaptive limit in a simulated queue: an engine that computes `num_slots` prompts at once and queues the rest."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS
from headway.flow.gradient import Gradient, failed, step


def simulate(
    state: Gradient,
    num_slots: int,
    num_clients: int,
    num_calls: int,
    *,
    seed: int = 0,
    prompts: tuple[int, ...] = (100,),
) -> list[Gradient]:
    """Clients that always have a next call, sent as the limit allows; a first token takes 10 ms a prompt token."""
    draw = random.Random(seed)
    now_ns, slots = 0, [0] * num_slots  # when each slot is free
    running: list[tuple[int, int, int, int]] = []  # (end, sent, prompt, in flight when sent)
    history = []
    for _ in range(num_calls):
        while len(running) < min(num_clients, state.num_places):
            prompt = draw.choice(prompts)
            start_ns = max(now_ns, heapq.heappop(slots))
            end_ns = start_ns + int(prompt * 10 * NS_PER_MS * draw.uniform(0.9, 1.1))
            heapq.heappush(slots, end_ns)
            heapq.heappush(running, (end_ns, now_ns, prompt, len(running) + 1))
        now_ns, sent_ns, prompt, in_flight = heapq.heappop(running)
        state = step(state, now_ns - sent_ns, prompt, in_flight)
        history.append(state)
    return history


def settled(history: list[Gradient]) -> list[float]:
    """Limits in the second half."""
    return [state.limit for state in history[len(history) // 2 :]]


@pytest.mark.parametrize("num_slots", [4, 16, 64])
def test_it_finds_what_the_engine_takes_and_keeps_it_for_ever(num_slots: int) -> None:
    limits = settled(simulate(Gradient(), num_slots, num_clients=1000, num_calls=20_000))
    assert min(limits) >= num_slots  # no slot stays empty
    assert max(limits) <= 2.5 * num_slots + 8  # and the queue there is short


@pytest.mark.parametrize("num_slots", [4, 32])
def test_long_prompts_among_short_ones_are_not_taken_for_a_queue(num_slots: int) -> None:
    history = simulate(Gradient(), num_slots, 1000, 20_000, prompts=(20, 200, 2000))
    assert min(settled(history)) >= 0.9 * num_slots


def test_it_follows_an_engine_that_gets_slower() -> None:
    large = simulate(Gradient(), 64, 1000, 5000)[-1]
    limits = settled(simulate(large, 8, 1000, 10_000))
    assert max(limits) <= 2.5 * 8 + 8


def test_while_few_calls_run_nothing_is_concluded() -> None:
    assert {state.limit for state in simulate(Gradient(limit=64), 64, num_clients=10, num_calls=400)} == {64}


def test_an_engine_that_batches_is_given_more_as_long_as_first_tokens_come_soon() -> None:
    state = Gradient()
    for _ in range(20_000):
        in_flight = state.num_places
        state = step(
            state, int((20 + 5 * in_flight) * NS_PER_MS), 100, in_flight
        )  # 5 ms more for each at once
    assert (
        40 <= state.limit <= 60
    )  # 220 to 320 ms: where twice the time without load had been the end, there were 4


def test_a_refusal_lowers_it() -> None:
    assert failed(Gradient(limit=10)).limit == 9
    assert failed(Gradient(limit=1)).limit == 1


@given(
    st.lists(
        st.tuples(st.integers(-5, 10**12), st.integers(0, 10**6), st.integers(0, 2000), st.booleans()),
        max_size=200,
    ),
    st.integers(1, 10),
    st.integers(10, 100),
)
def test_whatever_it_is_told_it_stays_within_its_bounds(
    samples: list[tuple[int, int, int, bool]], least: int, most: int
) -> None:
    state = Gradient(limit=float(least), min_limit=least, max_limit=most)
    for ttft_ns, prompt, in_flight, refused in samples:
        state = failed(state) if refused else step(state, ttft_ns, prompt, in_flight)
        assert least <= state.limit <= most
        assert least <= state.num_places <= most
