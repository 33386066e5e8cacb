"""The rule that finds a warm-up: nothing of a steady run, the slow start of another, and no answer where there is none."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from headway.lab.deltas import TokenUsage
from headway.lab.exchange import Exchange
from headway.lab.warm_up import WarmUp, find_warm_up, warm_up_length
from support.scripted_stream import DONE, play, tokens, usage


def steady(num_samples: int, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(100.0, 5.0, num_samples))


def test_a_slow_start_is_left_out_and_not_much_more() -> None:
    slow = [400.0, 380.0, 300.0, 250.0, 240.0, 180.0, 170.0, 150.0, 140.0, 130.0]
    for seed in range(20):
        found = warm_up_length([*slow, *steady(190, seed)])
        assert found is not None
        assert 10 <= found <= 50


def test_most_of_a_steady_run_is_kept() -> None:
    lengths = [warm_up_length(steady(200, seed)) for seed in range(100)]
    assert lengths.count(0) >= 90


def test_equal_samples_have_no_warm_up() -> None:
    assert warm_up_length([5.0] * 100) == 0


def test_a_run_that_only_rises_never_becomes_steady() -> None:
    assert warm_up_length([float(number) for number in range(200)]) is None


@pytest.mark.parametrize("num_samples", [0, 1, 19])
def test_of_a_few_samples_nothing_is_left_out(num_samples: int) -> None:
    assert warm_up_length([1e9, *steady(num_samples)][:num_samples]) == 0


def test_a_failure_is_no_latency() -> None:
    with pytest.raises(ValueError, match="not finite"):
        warm_up_length([1.0, math.inf])


@pytest.mark.parametrize("slow_ms", [800.0, 3000.0])
def test_one_slow_first_request_is_a_warm_up(slow_ms: float) -> None:
    lengths = [warm_up_length([slow_ms, *steady(99, seed)]) for seed in range(50)]
    assert lengths.count(0) == 0
    assert lengths.count(5) >= 30


@pytest.mark.parametrize("place", [20, 60, 99])
def test_one_slow_request_later_is_none(place: int) -> None:
    lengths = []
    for seed in range(50):
        samples = steady(100, seed)
        samples[place] = 3000.0
        lengths.append(warm_up_length(samples))
    assert lengths.count(0) >= 45


def answered(number: int, ttft_ms: float, *, turn: int = 1, label: str = "light") -> Exchange:
    start_ms = 10.0 * number
    sent = [*tokens(start_ms + ttft_ms, 1, 2)]
    end_ms = sent[-1][0]
    played = play(
        *sent,
        (end_ms, usage(2, cached_tokens=0)),
        (end_ms, DONE),
        intended_ms=start_ms,
        dispatched_ms=start_ms,
    )
    return replace(played, turn=turn, label=label, conversation=number)


def noisy(seed: int = 0) -> Iterator[float]:
    return iter(np.random.default_rng(seed).lognormal(0.0, 0.1, 1_000).tolist())


def test_requests_of_any_outcome_before_the_cut_are_left_out() -> None:
    noise = noisy()
    run = [answered(number, (400 if number < 12 else 100) * next(noise)) for number in range(100)]
    early, late = (
        replace(play(status=429, intended_ms=at, dispatched_ms=at), conversation=7) for at in (1, 900)
    )
    found = find_warm_up([*run, early, late])
    assert found.steady
    assert 11 <= found.num_excluded <= 21  # ten or more that succeeded, and the early refusal
    assert not found.keeps(early)
    assert found.keeps(late)
    assert sum(not found.keeps(each) for each in (*run, early, late)) == found.num_excluded
    assert find_warm_up([late, early, *run[::-1]]) == found


def test_what_alternates_by_design_is_no_warm_up() -> None:
    """All users begin with their first turn, and go on to slower ones; short prompts and long ones take turns."""
    noise = noisy(1)
    users = [
        answered(number, 50 * (1 + number // 20) * next(noise), turn=1 + number // 20)
        for number in range(100)
    ]
    lengths = [
        answered(number, (1000 if number % 2 else 20) * next(noise), label=f"context:{1 + number % 2}")
        for number in range(100)
    ]
    cold = [
        replace(answered(number, 20 * next(noise)), label="shared-prefix") for number in range(10)
    ]  # each the first of its group
    shared = [*cold, *(cached(answered(number, 5 * next(noise))) for number in range(10, 100))]
    for run in (users, lengths, shared):
        assert find_warm_up(run).num_excluded == 0


def cached(exchange: Exchange) -> Exchange:
    told = TokenUsage(prompt_tokens=512, completion_tokens=2, cached_tokens=480)
    return replace(exchange, label="shared-prefix", answer=replace(exchange.answer, usage=told))


def test_a_drift_is_told_and_nothing_is_left_out() -> None:
    run = [answered(number, 10.0 + number**2) for number in range(100)]
    found = find_warm_up(run)
    assert (found.steady, found.num_excluded) == (False, 0)
    assert all(map(found.keeps, run))


def test_of_failures_and_few_requests_nothing_is_said() -> None:
    failed = [play(status=503, intended_ms=at, dispatched_ms=at) for at in range(100)]
    for run in ([], failed, [answered(number, 5) for number in range(19)]):
        assert find_warm_up(run) == WarmUp(num_excluded=0, steady=None, from_ns=None)
