"""What chance could have made of a run's figures: intervals that hold the truth as often as they say."""

from dataclasses import replace

import numpy as np
import pytest

from headway.lab.distribution import ends
from headway.lab.estimates import KINDS, latency_estimates, share_estimate
from headway.lab.exchange import Exchange
from headway.lab.summary import summarise
from support.lab_runs import answered
from support.scripted_stream import play


def lognormal_run(seed: int, num: int = 60) -> list[Exchange]:
    rng = np.random.default_rng(seed)
    return [
        answered(ttft_ms=ttft_ms, itl_ms=itl_ms, conversation=number)
        for number, (ttft_ms, itl_ms) in enumerate(np.exp(rng.normal([4, 2], 0.3, (num, 2))))
    ]


def test_values_are_those_of_the_summary() -> None:
    run = [*lognormal_run(1), replace(play(status=429), conversation=99)]
    found, summary = latency_estimates(run), summarise(run)
    for key, distribution in (
        ("ttft", summary.ttft.successes),
        ("tpot", summary.tpot.successes),
        ("e2e", summary.e2e.successes),
        ("itl", summary.itl),
    ):
        assert found[f"{key}_p50"].value == pytest.approx(distribution.percentiles["p50"])
    assert found["ttft_p95"].value == summary.ttft.successes.percentiles["p95"]
    assert found["itl_mean"].value == pytest.approx(summary.itl.mean)
    assert found.keys() <= {kind.key for kind in KINDS}


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(20):
        interval = latency_estimates(lognormal_run(seed, num=30), seed)["ttft_p50"].interval
        assert interval is not None
        held += interval[0] <= np.exp(4) <= interval[1]
    assert held >= 16  # of 19 expected, and three deviations fewer


def test_conversations_are_drawn_whole() -> None:
    apart = lognormal_run(3, num=20)
    together = [replace(exchange, turn=turn) for exchange in apart for turn in range(1, 9)]
    alone = [replace(exchange, conversation=number) for number, exchange in enumerate(together)]
    wide, narrow = (latency_estimates(run)["ttft_p50"].interval for run in (together, alone))
    assert wide is not None
    assert narrow is not None
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_what_a_run_does_not_have_is_not_made_up() -> None:
    assert latency_estimates([]) == {}
    assert latency_estimates([play(status=429)]) == {}
    one = latency_estimates([answered(ttft_ms=5, num_tokens=1)])
    assert one.keys() == {"ttft_p50", "ttft_p95", "e2e_p50"}
    assert one["ttft_p50"].interval is None
    mostly_failed = [answered(), *[replace(play(status=429), conversation=number) for number in range(1, 9)]]
    assert latency_estimates(mostly_failed)["itl_mean"].interval is None  # some resamples have no success
    assert latency_estimates(lognormal_run(1, num=5))["itl_mean"].interval is None
    assert latency_estimates(lognormal_run(1, num=6))["itl_mean"].interval is not None
    few = latency_estimates(lognormal_run(1, num=20))
    assert few["ttft_p50"].interval is not None
    assert few["ttft_p95"].interval is None  # an upper end of it may lie above all that was seen


def test_shares_know_that_nothing_seen_is_not_nothing_possible() -> None:
    none = share_estimate(0, 20, 20)
    assert none.value == 0
    assert none.interval == pytest.approx((0, 0.161125), abs=1e-6)
    assert share_estimate(20, 20, 20).interval == pytest.approx((0.838875, 1), abs=1e-6)
    assert share_estimate(5, 20, 20).interval == pytest.approx((0.111862, 0.468701), abs=1e-6)
    wide, narrow = share_estimate(5, 20, 4).interval, share_estimate(5, 20, 20).interval
    assert wide is not None
    assert narrow is not None
    assert wide[1] > narrow[1]


def test_the_middle_of_draws() -> None:
    assert ends(np.arange(1.0, 1001.0)) == (25, 975)
