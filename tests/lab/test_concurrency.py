"""Requests in flight counted as they were, the curve of a server whose latency is known, and nothing lost."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.lab.concurrency import InFlight, by_concurrency, by_concurrency_json
from headway.lab.exchange import Answer, Exchange, Failure, Stamps, StreamEvent
from headway.lab.warm_up import WarmUp

MS = 1_000_000


def request(
    start: int, *came: int, end: int | None = None, conversation: int = 0, ok: bool = True
) -> Exchange:
    """A request in nanoseconds, one token a chunk."""
    events = tuple(StreamEvent(at_ns=at_ns, kind="content", num_chars=1) for at_ns in came)
    end = max((start, *came)) if end is None else end
    stamps = Stamps(
        intended_ns=start, dispatched_ns=start, written_ns=start, first_byte_ns=start, ended_ns=end
    )
    failure = None if ok else Failure(kind="closed", message="")
    return Exchange(stamps=stamps, answer=Answer(events=events, failure=failure), conversation=conversation)


def mean(in_flight: InFlight, from_ns: int, to_ns: int) -> float:
    return float(in_flight.mean(np.array([from_ns]), np.array([to_ns]))[0])


def test_the_mean_in_flight_is_that_of_time() -> None:
    found = InFlight([request(0, 10), request(4, 8), request(20, 30)])
    assert mean(found, 0, 10) == pytest.approx(1.4)
    assert mean(found, 4, 8) == 2
    assert mean(found, 10, 20) == 0
    assert mean(found, -10, 40) == pytest.approx((10 + 4 + 10) / 50)
    assert (mean(found, 5, 5), mean(found, 15, 15)) == (2, 0)


def test_a_server_that_takes_turns_shows_its_curve() -> None:
    """With k users at a time an answer takes k times as long: 20 answers each for 1, 2, 4 and 8 users."""
    run, at, conversation = [], 0, 0
    for users in (1, 2, 4, 8):
        for _ in range(20 // users + 1):
            for _ in range(users):
                came = [at + users * MS * token for token in range(2, 12)]
                run.append(request(at, *came, conversation=conversation))
                conversation += 1
            at += 11 * users * MS
    Random(1).shuffle(run)
    curve = by_concurrency(run)
    assert [(crowd.least, crowd.most) for crowd in curve] == [(1, 1), (2, 2), (3, 4), (5, 8)]
    for users, crowd in zip((1, 2, 4, 8), curve, strict=True):
        assert crowd.ttft.successes.percentiles["p50"] == 2 * users
        assert crowd.tpot.successes.percentiles["p50"] == pytest.approx(users)
        assert crowd.e2e.successes.percentiles["p50"] == 11 * users
        assert crowd.request_tok_s.percentiles["p50"] == pytest.approx(10_000 / (11 * users))
        assert crowd.output_tok_s == pytest.approx(10_000 / 11)
        assert crowd.duration_s == pytest.approx(0.011 * users * (20 // users + 1))


def test_a_warm_up_is_in_flight_and_in_no_latency() -> None:
    early, late = request(0, 5, end=100), request(50, 60, 70, end=100)
    alone, crowd = by_concurrency([early, late], WarmUp(num_excluded=1, steady=True, from_ns=50))
    assert alone.num_ok == 0
    assert alone.duration_s == pytest.approx(50e-9)
    assert (crowd.least, crowd.num_ok) == (2, 2)
    assert crowd.ttft.successes.n == 1
    assert by_concurrency([]) == ()


def busy_s(run: list[Exchange]) -> float:
    moments = {t for each in run for t in range(each.stamps.intended_ns, each.stamps.ended_ns)}
    return len(moments) / NS_PER_S


streams = st.lists(
    st.tuples(
        st.integers(0, 500), st.lists(st.integers(0, 300), max_size=5), st.integers(0, 50), st.booleans()
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=50)
@given(streams)
def test_the_curve_holds_every_request_token_and_moment(
    drawn: list[tuple[int, list[int], int, bool]],
) -> None:
    run = []
    for number, (start, gaps, rest, ok) in enumerate(drawn):
        came = [start + sum(gaps[: i + 1]) for i in range(len(gaps))]
        end = max([start, *came]) + rest
        run.append(request(start, *came, end=end, conversation=number, ok=ok and bool(came)))
    curve = by_concurrency(run)
    assert sum(crowd.num_ok for crowd in curve) == sum(exchange.ok for exchange in run)
    assert sum(crowd.ttft.all_requests.n + crowd.ttft.all_requests.num_infinite for crowd in curve) == len(
        run
    )
    for crowd in curve:
        assert crowd.duration_s >= 0
        assert crowd.output_tok_s is None or crowd.output_tok_s >= 0
    in_flight = InFlight(run) if run else None
    if in_flight is not None:
        moments = np.arange(0, 2_100)
        counted = [sum(e.stamps.intended_ns <= t < e.stamps.ended_ns for e in run) for t in moments.tolist()]
        assert in_flight.mean(moments, moments).tolist() == [float(number) for number in counted]
        assert mean(in_flight, 0, 2_100) == pytest.approx(sum(counted) / 2_100)
    assert by_concurrency_json(by_concurrency(run)) == by_concurrency_json(curve)
    told = sum((crowd.output_tok_s or 0) * crowd.duration_s for crowd in curve)
    assert sum(crowd.duration_s for crowd in curve) == pytest.approx(busy_s(run))
    assert told <= sum(len(exchange.text_events) for exchange in run if exchange.ok) + 1e-6


def test_every_token_is_in_the_curve() -> None:
    run = [request(10 * number, 10 * number + 3, 10 * number + 25) for number in range(40)]
    curve = by_concurrency([replace(each, conversation=number) for number, each in enumerate(run)])
    assert len(curve) >= 2
    told = sum((crowd.output_tok_s or 0) * crowd.duration_s for crowd in curve)
    assert told == pytest.approx(80)
