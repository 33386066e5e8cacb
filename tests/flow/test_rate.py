"""Buckets as values, and the rate that follows risk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.core.quota import Quota
from headway.flow.rate import MAX_WAIT_NS, Bucket, burst_of, full, rate_at_risk

amounts = st.floats(0.01, 1000)


@pytest.mark.parametrize(
    ("base", "floor", "risk", "rate"),
    [
        (100, 10, 0, 100),
        (100, 10, 1, 70),
        (100, 10, 2, 40),
        (100, 10, 9, 40),
        (100, 10, -1, 100),
        (20, 10, 2, 10),
        (5, 10, 0, 5),
        (5, 10, 2, 5),
    ],
)
def test_the_rate_falls_with_the_risk_and_never_below_the_floor_nor_above_the_base(
    base: float, floor: float, risk: float, rate: float
) -> None:
    assert rate_at_risk(base, floor, risk) == pytest.approx(rate)


@given(amounts, amounts, st.floats(0, 2), st.floats(0, 2))
def test_more_risk_never_gives_more(base: float, floor: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert rate_at_risk(base, floor, high) <= rate_at_risk(base, floor, low) <= base


def test_a_burst_is_at_least_one_request() -> None:
    assert burst_of(0.2, 1) == 1
    assert burst_of(40, 0.5) == 20


def test_a_full_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = full(0, 10, 3)
    for _ in range(3):
        bucket, wait_ns = bucket.take()
        assert wait_ns == 0
    same, wait_ns = bucket.take()
    assert same == bucket
    assert wait_ns == NS_PER_S // 10
    assert bucket.at(wait_ns, 10, 3).take()[1] == 0
    assert bucket.at(wait_ns - 1000, 10, 3).take()[1] > 0


def test_a_lowered_rate_leaves_no_credit_behind() -> None:
    assert full(0, 100, 100).at(0, 40, 40).level == 40


def test_time_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    bucket = Bucket(1.0, 5 * NS_PER_S, 10, 20)
    assert bucket.at(0, 10, 20) == bucket
    assert bucket.at(0, 10, 20).at(5 * NS_PER_S, 10, 20) == bucket


def test_what_never_comes_is_waited_for_as_long_as_is_told_at_most() -> None:
    assert full(0, 0, 1).put(-1).take()[1] == MAX_WAIT_NS
    assert full(0, 1, 5).wait_ns(6) == MAX_WAIT_NS


def test_a_debt_is_paid_before_anything_is_given() -> None:
    bucket = full(0, 1, 10).put(-15)
    assert bucket.level == -5
    assert bucket.quota() == Quota(10, 0, 15 * NS_PER_S)
    assert bucket.take()[1] == 6 * NS_PER_S


@given(
    rate=amounts,
    burst=st.floats(1, 100),
    gaps=st.lists(st.integers(0, 2 * NS_PER_S), min_size=1, max_size=60),
)
def test_no_run_of_requests_gets_more_than_burst_and_rate(rate: float, burst: float, gaps: list[int]) -> None:
    bucket, now_ns, taken = full(0, rate, burst), 0, 0
    for gap in gaps:
        now_ns += gap
        bucket, wait_ns = bucket.at(now_ns, rate, burst).take()
        taken += not wait_ns
    assert taken <= burst + rate * now_ns / NS_PER_S + 1e-6


@given(rate=amounts, burst=st.floats(1, 100), spent=st.floats(0, 100))
def test_who_waits_as_long_as_told_is_served(rate: float, burst: float, spent: float) -> None:
    bucket = full(0, rate, burst).put(-spent)
    wait_ns = bucket.wait_ns(1.0)
    later = bucket.at(wait_ns, rate, burst)
    assert wait_ns == MAX_WAIT_NS or later.level >= 1 - 1e-9
