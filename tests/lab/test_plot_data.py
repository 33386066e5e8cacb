"""What a report's plots show: counts and values known by construction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.plot_data import (
    evenly,
    histogram,
    in_flight,
    medians,
    mostly_cached,
    windows,
)
from support.lab_runs import answered, failed


def test_a_few_of_many_are_taken_evenly_with_both_ends() -> None:
    assert evenly(range(3), 5) == range(3)
    assert evenly(range(9), 5) == [0, 2, 4, 6, 8]
    taken = evenly(range(10_000), 200)
    assert (len(taken), taken[0], taken[-1]) == (200, 0, 9_999)


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=200))
def test_a_histogram_has_every_sample_once(samples: list[float]) -> None:
    found = histogram(samples)
    assert len(found.edges) == len(found.shares) + 1
    assert list(found.edges) == sorted(found.edges)
    assert sum(found.shares) == pytest.approx(1)


def test_a_histogram_counts_a_sample_as_often_as_told() -> None:
    assert histogram([1.0, 9.0], [3, 1]).shares[0] == 0.75


def test_one_pause_does_not_squash_a_histogram() -> None:
    steady = [10.0 + 0.1 * number for number in range(100)]
    assert not histogram(steady).logarithmic
    paused = histogram([*steady, 2_000.0])
    assert paused.logarithmic
    assert max(paused.shares) < 0.9
    assert paused.edges[0] == 10
    assert paused.edges[-1] == pytest.approx(2_000)


def test_equal_samples_have_a_bar_to_see() -> None:
    found = histogram([3.0, 3.0])
    assert found.shares == (1.0,)
    assert found.edges[0] < 3 < found.edges[1]
    assert histogram([0.0]).edges[0] == 0


def test_requests_in_flight_are_the_others() -> None:
    first = answered(0, ttft_ms=100, num_tokens=1)
    second = answered(50, ttft_ms=100, num_tokens=1)
    after_first = answered(100, ttft_ms=10, num_tokens=1)
    last = answered(500)
    assert in_flight([last, second, first, after_first]) == [0, 1, 0, 1]


def test_a_request_that_failed_at_once_was_not_in_its_own_way() -> None:
    at_once = failed(0, after_ms=0)
    assert in_flight([at_once]) == [0]
    assert in_flight([at_once, answered(0)]) == [1, 0]


def test_medians_are_told_of_levels_that_have_some() -> None:
    assert medians([1, 1, 1, 2, 2, 5, 5, 5], [10, 30, 20, 1, 1, 7, 8, 9]) == [(1, 20), (5, 8)]


def test_many_levels_become_stretches() -> None:
    found = medians(range(100), [2.0 * level for level in range(100)], most=10)
    assert len(found) == 10
    assert all(value == pytest.approx(2 * level) for level, value in found)


def test_windows_are_equal_and_hold_every_request() -> None:
    run = [answered(1_000 + 100 * number, ttft_ms=10 + number // 10) for number in range(41)]
    found = windows([*run, failed(3_000)], start_ns=0)
    assert len(found) == 8
    assert found[0].start_s == 1
    assert {window.width_s for window in found} == {0.5}
    assert [window.num_ok for window in found] == [5, 5, 5, 5, 5, 5, 5, 6]
    assert [window.num_failed for window in found] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert (found[0].ttft_p50_ms, found[7].ttft_p95_ms) == (10, 14)


def test_a_window_without_answers_has_no_latency() -> None:
    found = windows([failed(number) for number in range(5)] + [answered(100 + n) for n in range(5)], 0)
    assert (found[0].ttft_p50_ms, found[1].ttft_p50_ms) == (None, 50)


@pytest.mark.parametrize("run", [[], [answered(5)] * 9, [answered(5)] * 50])
def test_a_run_without_a_course_has_no_windows(run: list[object]) -> None:
    assert windows(run, 0) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "cached", "mostly"),
    [(100, None, False), (100, 0, False), (100, 49, False), (100, 50, True), (0, 0, False)],
)
def test_a_prompt_is_cached_from_half_of_it_on(prompt: int, cached: int | None, mostly: bool) -> None:
    assert mostly_cached(answered(prompt_tokens=prompt, cached_tokens=cached)) is mostly
