"""Percentiles are what was measured, intervals hold what they promise, failures make nothing faster."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.distribution import (
    LEAST_CLUSTERS,
    PERCENTILES,
    _Blocks,
    describe,
    order_interval,
    percentile,
)

finite = st.floats(min_value=-1e6, max_value=1e6)


def test_a_percentile_is_the_smallest_sample_that_enough_do_not_exceed() -> None:
    ordered = np.arange(1.0, 101.0)
    assert [percentile(ordered, share) for share in (0.5, 0.9, 0.95, 0.99)] == [50, 90, 95, 99]
    assert percentile(np.array([3.0]), 0.999) == 3
    assert percentile(np.array([1.0, 2.0, 3.0]), 0.5) == 2


@given(st.lists(finite, min_size=1, max_size=60), st.sampled_from(sorted(PERCENTILES.values())))
def test_a_percentile_was_measured_and_splits_the_samples_as_it_says(
    samples: list[float], share: float
) -> None:
    found = percentile(np.sort(samples), share)
    assert found in samples
    assert sum(value <= found for value in samples) >= share * len(samples) - 1e-9
    assert sum(value < found for value in samples) < share * len(samples) + 1e-9


def test_percentiles_that_so_few_samples_cannot_tell_are_not_told() -> None:
    few, many = describe(range(99)), describe(range(100))
    assert few.percentiles["p99"] is None
    assert few.percentiles["p95"] == 94
    assert many.percentiles["p99"] == 98
    assert many.percentiles["p99.9"] is None
    assert describe(range(1_000)).percentiles["p99.9"] == 998


def test_no_sample_at_all_tells_nothing() -> None:
    nothing = describe([])
    assert (nothing.n, nothing.num_infinite, nothing.mean, nothing.std) == (0, 0, None, None)
    assert set(nothing.percentiles.values()) == {None}
    assert set(nothing.intervals.values()) == {None}


def test_one_sample_has_no_interval() -> None:
    one = describe([7.0])
    assert (one.mean, one.std, one.percentiles["p50"]) == (7.0, None, 7.0)
    assert set(one.intervals.values()) == {None}


def test_mean_and_deviation_are_of_what_came() -> None:
    found = describe([1.0, 2.0, 3.0, math.inf])
    assert (found.n, found.num_infinite, found.mean, found.std) == (3, 1, 2.0, 1.0)


@given(st.lists(finite, min_size=1, max_size=50), st.integers(0, 20))
def test_failures_never_make_a_percentile_faster(samples: list[float], num_failures: int) -> None:
    without = describe(samples)
    failed = describe([*samples, *[math.inf] * num_failures])
    for name, value in without.percentiles.items():
        if value is not None:
            told = failed.percentiles[name]
            assert told is not None
            assert told >= value


@pytest.mark.parametrize("sample", [math.nan, -math.inf])
def test_what_is_no_latency_is_refused(sample: float) -> None:
    with pytest.raises(ValueError, match="NaN"):
        describe([1.0, sample])


def test_clusters_and_samples_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 samples, but 1 clusters"):
        describe([1.0, 2.0], [0])


@pytest.mark.parametrize(
    ("share", "normal_quantile", "size"),
    [(0.5, 0.0, 30), (0.5, 0.0, 201), (0.95, 1.6448536, 400), (0.99, 2.3263479, 800)],
)
def test_order_intervals_hold_the_truth_as_often_as_they_say(
    share: float, normal_quantile: float, size: int
) -> None:
    rng = np.random.default_rng(7)
    truth, held = math.exp(0.8 * normal_quantile), 0
    for _ in range(1_000):
        interval = order_interval(np.sort(np.exp(0.8 * rng.standard_normal(size))), share)
        assert interval is not None
        held += interval[0] <= truth <= interval[1]
    assert held >= 940  # 95 % of 1,000 less one and a half standard deviations


def test_an_interval_that_cannot_be_is_not_told() -> None:
    assert order_interval(np.arange(5.0), 0.5) is None  # all five may be on one side in one of sixteen
    assert order_interval(np.arange(6.0), 0.5) == (0.0, 5.0)
    assert order_interval(np.arange(100.0), 0.99) is None


def test_resembling_samples_widen_the_interval() -> None:
    """Twenty conversations of twenty turns: a conversation's turns tell hardly more than one of them."""
    rng = np.random.default_rng(3)
    clusters = [conversation for conversation in range(20) for _ in range(20)]
    held = {"clustered": 0, "alone": 0}
    for _ in range(60):
        level = rng.standard_normal(20)
        samples = [level[conversation] + 0.1 * rng.standard_normal() for conversation in clusters]
        for way, intervals in (
            ("clustered", describe(samples, clusters).intervals),
            ("alone", describe(samples).intervals),
        ):
            interval = intervals["p50"]
            assert interval is not None
            held[way] += interval[0] <= 0 <= interval[1]
    assert held["clustered"] >= 54
    assert held["alone"] <= 40


@pytest.mark.parametrize("num_clusters", [1, LEAST_CLUSTERS - 1])
def test_a_few_clusters_have_no_interval_however_many_their_samples(num_clusters: int) -> None:
    samples, clusters = range(100), [number % num_clusters for number in range(100)]
    assert set(describe(samples, clusters).intervals.values()) == {None}


def test_durations_have_no_mean_below_zero_within_the_interval() -> None:
    above = describe([0.1, 0.2, 900.0]).intervals["mean"]
    assert above is not None
    assert above[0] == 0
    assert above[1] == pytest.approx(1590, rel=0.01)
    below = describe([-0.1, 0.2, 900.0]).intervals["mean"]
    assert below is not None
    assert below[0] < 0


def test_the_same_samples_have_the_same_intervals() -> None:
    samples, clusters = (
        [float(7 * number % 13) for number in range(13)],
        [number // 2 for number in range(13)],
    )
    found = describe(samples, clusters)
    assert found == describe(samples, clusters)
    assert found.intervals["p50"] is not None
    assert describe(samples[::-1], clusters[::-1]).intervals["p50"] == found.intervals["p50"]


@given(
    st.lists(st.tuples(st.floats(0, 100) | st.just(math.inf), st.integers(0, 4)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_blocks_find_the_sample_that_counting_finds(
    samples: list[tuple[float, int]], num_drawn: int, random: Random
) -> None:
    ordered = np.array(sorted(value for value, _ in samples))
    cluster = np.array([cluster for _, cluster in samples])
    times = np.array([[random.randint(0, 3) for _ in range(5)] for _ in range(num_drawn)], dtype=np.float64)
    times[:, cluster[0]] += 1  # one sample at least
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.lab.distribution._MOST_BLOCKS", 4)
        blocks = _Blocks(cluster, 5)
    up_to = np.cumsum(times @ blocks.counts, axis=1)
    for share in (0.01, 0.5, 0.9, 1.0):
        ranks = np.maximum(1, np.ceil(up_to[:, -1] * share))
        for row, position in enumerate(blocks.positions(times, up_to, ranks)):
            drawn = np.repeat(ordered, times[row][cluster].astype(int))
            assert ordered[position] == drawn[int(ranks[row]) - 1]
