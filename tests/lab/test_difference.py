"""Two recorded runs: a difference is told with its interval, and no more is said than that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.difference import Difference, differences, verdict
from headway.lab.estimates import Estimate, share_estimate

NAMES = ("RUN1", "RUN2")


def drawn(value: float, deviation: float, seed: int) -> Estimate:
    draws = np.random.default_rng(seed).normal(value, deviation, 2000)
    return Estimate(value=value, interval=(value - 2 * deviation, value + 2 * deviation), draws=draws)


def told(value: float, half: float) -> Estimate:
    return Estimate(value=value, interval=(value - half, value + half))


def one(key: str, a: Estimate | None, b: Estimate | None, least_effect: float = 0.05) -> Difference:
    sides = [{} if side is None else {key: side} for side in (a, b)]
    (found,) = differences(*sides, least_effect=least_effect)
    return found


def test_drawn_differences_have_the_interval_of_two_deviations() -> None:
    found = one("ttft_p50", drawn(100, 3, 0), drawn(120, 4, 1))
    assert (found.difference, found.ratio) == (20, 1.2)
    assert found.interval == pytest.approx((20 - 9.8, 20 + 9.8), abs=1)
    assert found.ratio_interval == pytest.approx((1.094, 1.31), abs=0.02)
    assert found.judgement == "worse"


def test_told_intervals_are_combined_by_squares() -> None:
    found = one("e2e_p50", told(100, 3), told(90, 4))
    assert found.interval == pytest.approx((-15, -5))
    assert found.ratio_interval is not None
    assert found.ratio_interval[0] < 0.9 < found.ratio_interval[1] < 1
    assert found.judgement == "better"
    assert one("e2e_p50", drawn(100, 1.5, 0), told(90, 4)).interval == pytest.approx((-15, -5))


def test_shares_differ_by_newcombes_interval() -> None:
    """Newcombe 1998, method 10, its example (a): 56/70 - 48/80 is 0.2, 0.0524 to 0.3339."""
    found = one("goodput", share_estimate(48, 80, 80), share_estimate(56, 70, 70))
    assert found.interval == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert (found.ratio, found.judgement) == (None, "better")
    assert one("failures", share_estimate(48, 80, 80), share_estimate(56, 70, 70)).judgement == "worse"


@pytest.mark.parametrize(
    ("a", "b", "judgement"),
    [
        (told(100, 1), told(101, 1), "equal"),
        (told(100, 20), told(110, 20), "unknown"),
        (told(100, 1), None, "unknown"),
        (None, told(100, 1), "unknown"),
        (Estimate(value=100), told(200, 1), "unknown"),
        (told(100, 150), told(200, 1), "unknown"),  # no logarithm
        (told(0, 0), told(200, 1), "unknown"),
    ],
)
def test_what_is_left_possible_is_not_ruled_out(
    a: Estimate | None, b: Estimate | None, judgement: str
) -> None:
    assert one("ttft_p50", a, b).judgement == judgement


def test_nothing_seen_to_fail_twice_is_not_called_equal() -> None:
    assert one("failures", share_estimate(0, 20, 20), share_estimate(0, 20, 20)).judgement == "unknown"
    assert one("failures", share_estimate(0, 74, 74), share_estimate(0, 74, 74)).judgement == "equal"
    assert one("failures", share_estimate(0, 72, 72), share_estimate(0, 72, 72)).judgement == "unknown"


estimates = st.builds(told, st.floats(10, 1e4), st.floats(0, 9))


@given(estimates, estimates, st.sampled_from(["ttft_p50", "output_tok_s"]))
def test_exchanging_the_runs_exchanges_the_judgement(a: Estimate, b: Estimate, key: str) -> None:
    there, back = one(key, a, b), one(key, b, a)
    opposite = {"better": "worse", "worse": "better"}
    assert there.ratio_interval is not None
    if min(abs(end - edge) for end in there.ratio_interval for edge in (1, 1.05, 1 / 1.05)) > 1e-9:
        assert back.judgement == opposite.get(there.judgement, there.judgement)


def test_the_verdict_names_every_figure_that_it_can_judge() -> None:
    a = {
        "ttft_p50": told(100, 1),
        "itl_mean": told(10, 0.1),
        "e2e_p50": told(500, 1),
        "ttft_p95": told(200, 90),
    }
    b = {
        "ttft_p50": told(110, 1),
        "itl_mean": told(9, 0.1),
        "e2e_p50": told(501, 1),
        "ttft_p95": told(210, 90),
    }
    found = differences(a, b, least_effect=0.05)
    assert verdict(found, least_effect=0.05, names=NAMES) == (
        "RUN2 is worse than RUN1 in TTFT p50 (+10.0%), better than RUN1 in ITL mean (-10.0%), "
        "equal to RUN1 to within 5% in E2E p50; of the rest it cannot be told."
    )
    unclear = differences({"ttft_p95": a["ttft_p95"]}, {"ttft_p95": b["ttft_p95"]}, least_effect=0.005)
    assert verdict(unclear, least_effect=0.005, names=NAMES) == (
        "It cannot be told whether RUN2 differs from RUN1 by 0.5% in any figure."
    )
    failed = differences(
        {"failures": share_estimate(0, 99, 99)}, {"failures": share_estimate(33, 99, 99)}, least_effect=0.1
    )
    assert verdict(failed, least_effect=0.1, names=NAMES) == (
        "RUN2 is worse than RUN1 in failures (+33.3 points)."
    )


def test_a_least_effect_is_a_share() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        differences({}, {}, least_effect=5)
