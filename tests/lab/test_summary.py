"""What a run adds up to: figures of what was sent and when, and failures that never make it look better."""

import json
import math
from dataclasses import replace

import pytest

from headway.lab.exchange import Exchange
from headway.lab.slo import Slo
from headway.lab.summary import as_json, summarise
from support.scripted_stream import DONE, play, tokens, usage

MS = 1_000_000


def answered(ttft_ms: float, itl_ms: float = 10, num_tokens: int = 5, intended_ms: float = 0) -> Exchange:
    """A request that is sent when it is due, and one token a chunk."""
    sent = tokens(intended_ms + ttft_ms, itl_ms, num_tokens)
    end_ms = sent[-1][0]
    return play(
        *sent, (end_ms, usage(num_tokens)), (end_ms, DONE), intended_ms=intended_ms, dispatched_ms=intended_ms
    )


def refused(intended_ms: float = 0) -> Exchange:
    return play(status=429, intended_ms=intended_ms, dispatched_ms=intended_ms)


def test_figures_are_those_of_what_was_sent() -> None:
    run = [answered(ttft_ms=50 + 10 * number, intended_ms=100 * number) for number in range(11)]
    found = summarise(run)
    assert (found.num_offered, found.num_ok, found.failures) == (11, 11, {})
    assert found.ttft.successes.percentiles["p50"] == 100
    assert found.ttft.successes.mean == pytest.approx(100)
    assert found.tpot.successes.percentiles["p95"] == 10
    assert found.e2e.successes.percentiles["p50"] == 140
    assert (found.itl.n, found.itl.mean) == (44, 10)
    assert found.lag.percentiles["p95"] == 0
    assert found.request_rate == pytest.approx(10)
    assert found.duration_s == pytest.approx(1.19)
    assert found.output_tokens == 55
    assert found.output_tok_s == pytest.approx(55 / 1.19)
    assert found.token_source == "usage"
    assert found.goodput is None


def test_failures_and_refusals_make_no_percentile_faster() -> None:
    ok = [answered(ttft_ms=50 + number, intended_ms=10 * number) for number in range(160)]
    broken = [replace(play((5, b"data: {\n\n")), conversation=number) for number in range(20)]
    bad = summarise([*ok, *broken, *[refused() for _ in range(20)]], slo=Slo(ttft_ns=100 * MS))
    good = summarise(ok)
    for name, value in good.ttft.successes.percentiles.items():
        assert bad.ttft.successes.percentiles[name] == value
        if value is not None:
            told = bad.ttft.all_requests.percentiles[name]
            assert told is not None
            assert told >= value
    assert bad.ttft.all_requests.percentiles["p95"] == math.inf
    assert bad.failures == {"garbage": 20, "refused_429": 20}
    assert bad.goodput is not None
    assert bad.goodput.fraction == 51 / 200  # TTFT of 50 to 100 ms, of all that were offered


def test_an_interval_counts_for_each_of_its_tokens() -> None:
    steady, slow = answered(10, itl_ms=10, num_tokens=91), answered(10, itl_ms=100, num_tokens=11)
    found = summarise([steady, replace(slow, conversation=1)])
    assert found.itl.n == 100
    assert (found.itl.percentiles["p90"], found.itl.percentiles["p95"]) == (10, 100)


def test_turns_of_one_conversation_do_not_count_as_independent() -> None:
    run = [
        replace(answered(10 * (number // 10) + 50, intended_ms=number), conversation=number // 10)
        for number in range(60)
    ]
    clustered = summarise(run, seek_warm_up=False).ttft.successes.intervals["p50"]
    alone = summarise(
        [replace(each, conversation=number) for number, each in enumerate(run)], seek_warm_up=False
    )
    narrow = alone.ttft.successes.intervals["p50"]
    assert clustered is not None
    assert narrow is not None
    assert clustered[1] - clustered[0] > narrow[1] - narrow[0]


def test_the_json_is_json_whatever_happened() -> None:
    for run in ([], [refused()], [answered(5, num_tokens=1)], [answered(5), refused()]):
        told = as_json(summarise(run, slo=Slo(ttft_ns=MS), num_unsent_turns=3))
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        assert told["unsent_turns"] == 3
        for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
            figure = told[name]
            assert isinstance(figure, dict)
            assert figure.keys() >= {"p50", "p95", "p99", "mean", "std", "n", "ci95"}


def test_the_json_says_what_failures_made_endless() -> None:
    told = as_json(summarise([answered(5), refused(), refused()]))
    ttft = told["ttft_ms"]
    assert isinstance(ttft, dict)
    assert (ttft["p50"], ttft["with_failures"]["p50"]) == (5.0, "inf")
    assert told["errors"] == {"refused_429": 2}
    assert told["rate"] == {
        "requests_s": None,
        "output_tok_s": pytest.approx(5 / 0.045, rel=1e-5),
        "peak_tok_s": 5,
    }


def test_a_warm_up_is_left_out_of_latencies_and_of_nothing_else() -> None:
    run = [
        answered(400 if number < 10 else 50 + number % 7, intended_ms=20 * number) for number in range(100)
    ]
    run = [replace(each, conversation=number) for number, each in enumerate(run)]
    found = summarise([*run, refused(intended_ms=3)], slo=Slo(ttft_ns=100 * MS))
    assert (found.warm_up.num_excluded, found.warm_up.steady) == (11, True)
    for figure in (found.ttft, found.ttft_from_dispatch, found.tpot, found.e2e):
        assert (figure.successes.n, figure.all_requests.num_infinite) == (90, 0)
    assert found.ttft.successes.percentiles["p95"] == 56
    assert found.itl.n == 360
    assert (found.num_offered, found.num_ok, found.lag.n, found.output_tokens) == (101, 100, 101, 500)
    assert found.failures == {"refused_429": 1}
    assert found.goodput is not None
    assert found.goodput.num_met == 90
    assert as_json(found)["warm_up"] == {"excluded": 11, "steady": True}


def test_a_load_that_changes_by_design_has_no_warm_up() -> None:
    run = [answered(400 if number < 10 else 50, intended_ms=20 * number) for number in range(100)]
    found = summarise(run, seek_warm_up=False)
    assert found.ttft.successes.n == 100
    assert as_json(found)["warm_up"] == {"excluded": 0, "steady": None}


def test_the_order_of_records_says_nothing() -> None:
    run = [
        replace(answered(50 + number % 7 + 100 * (number < 9), intended_ms=number), conversation=number)
        for number in range(40)
    ]
    assert as_json(summarise(run[::-1])) == as_json(summarise(run))


def test_time_between_parts_is_no_time_of_theirs() -> None:
    """A ladder's found rate may be measured early and again late; what was measured between is in no rate."""
    early = [answered(ttft_ms=50, intended_ms=100 * number) for number in range(11)]
    late = [answered(ttft_ms=50, intended_ms=60_000 + 100 * number) for number in range(11)]
    whole, together = summarise(early), summarise([*early, *late], parts=[early, late, []])
    assert together.duration_s == pytest.approx(2 * whole.duration_s)
    assert together.request_rate == pytest.approx(10)
    assert together.output_tok_s == pytest.approx(whole.output_tok_s)
    assert together.num_offered == 22


def test_opening_connections_is_told_apart() -> None:
    one = answered(ttft_ms=50)
    opened = replace(
        one, stamps=replace(one.stamps, dispatched_ns=one.stamps.dispatched_ns - 3 * MS, connect_ns=3 * MS)
    )
    found = summarise([one, opened])
    assert (found.connect.n, found.connect.mean) == (1, 3)
    connect = as_json(found)["connect_ms"]
    assert isinstance(connect, dict)
    assert connect["p50"] == 3
