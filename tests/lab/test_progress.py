"""A run so far: percentiles as exact as the histograms are, rates, what is recent, and when it will end."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.distribution import LEAST_SAMPLES, percentile
from headway.lab.exchange import Exchange
from headway.lab.latency import intervals, lag_ns, ttft_ns
from headway.lab.progress import SHOWN, WINDOW_S, Progress, Snapshot, Spread
from headway.lab.sample import Sample
from support.scripted_stream import DONE, chat, play, tokens, usage

MS = 1_000_000
S = 1_000_000_000
START_NS = 500 * S + 300 * MS


class Clock:
    """Stands still until it is wound."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        return self.now_ns


def sample(
    ended_ns: int = START_NS,
    *,
    failure: str | None = None,
    lag: int = 0,
    ttft: int | None = 10 * MS,
    itl: float | None = 2 * MS,
    intervals: int = 9,
    tokens: int = 10,
) -> Sample:
    return Sample(
        failure=failure,
        ended_ns=ended_ns,
        lag_ns=lag,
        ttft_ns=ttft,
        e2e_ns=ttft,
        itl_ns=itl,
        num_intervals=intervals if itl is not None else 0,
        output_tokens=tokens,
    )


def check(spread: Spread, values_ns: Sequence[float]) -> None:
    """Compare with what the lab says of the same values in microseconds: rounded up to three digits, never further."""
    assert spread.n == len(values_ns)
    exact_us = np.sort(np.round(np.asarray(values_ns, dtype=np.float64) / 1000))
    for name, share in SHOWN.items():
        found_ms = spread.percentiles[name]
        if len(exact_us) < LEAST_SAMPLES.get(name, 1):
            assert found_ms is None
            continue
        assert found_ms is not None
        exact = percentile(exact_us, share)
        assert exact <= round(found_ms * 1000) <= exact * 1.001 + 1


requests = st.tuples(
    st.integers(0, 40 * S),  # ended, after the start
    st.integers(0, 100 * S),  # TTFT
    st.integers(0, 5 * S),  # lag
    st.floats(0, 3.0 * S),  # ITL
    st.integers(1, 50),  # tokens that have it
    st.booleans(),
)


@given(st.lists(requests, max_size=250), st.integers(0, 45 * S))
def test_percentiles_are_exact_to_three_digits(
    told: list[tuple[int, int, int, float, int, bool]], now: int
) -> None:
    told = [one for one in told if one[0] <= now]
    clock = Clock()
    progress = Progress(clock)
    progress.set_planned(None, None)
    for ended, ttft, lag, itl, num, ok in told:
        progress.add(
            sample(
                START_NS + ended,
                failure=None if ok else "status_500",
                ttft=ttft,
                lag=lag,
                itl=itl,
                intervals=num,
            )
        )
    clock.now_ns = START_NS + now
    found = progress.snapshot()
    oldest = (clock.now_ns // S - WINDOW_S) * S - START_NS
    for span, part in ((found.whole, told), (found.recent, [one for one in told if one[0] >= oldest])):
        answered = [one for one in part if one[5]]
        assert (span.num_ended, span.num_ok) == (len(part), len(answered))
        check(span.lag, [one[2] for one in part])
        check(span.ttft, [one[1] for one in answered])
        check(span.itl, [one[3] for one in answered for _ in range(one[4])])
    assert found.whole.seconds == now / S


def test_a_sample_says_what_its_record_says() -> None:
    exchange: Exchange = play(*tokens(10, 5, 8), (60, chat("length") + usage(16) + DONE))
    told = Sample.of(exchange)
    assert told.ok
    assert (told.ttft_ns, told.lag_ns, told.ended_ns) == (
        ttft_ns(exchange),
        lag_ns(exchange),
        exchange.stamps.ended_ns,
    )
    assert (told.itl_ns, told.num_intervals) == (intervals(exchange).mean_ns, intervals(exchange).num_tokens)
    assert told.output_tokens == 16
    failed = Sample.of(play(*tokens(10, 5, 2)))
    assert (failed.ok, failed.failure) == (False, "closed")


def test_rates_are_of_the_time_since_the_start_and_of_late() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.set_planned(None, None)
    for second in range(30):
        clock.now_ns = START_NS + second * S
        progress.add(sample(clock.now_ns, failure="closed" if second % 3 == 0 else None))
    progress.set_running(6)
    clock.now_ns = START_NS + 30 * S
    found = progress.snapshot()
    assert found.offered_s == pytest.approx(36 / 30)
    assert found.whole.answered_s == pytest.approx(20 / 30)
    assert found.whole.output_tok_s == pytest.approx(200 / 30)
    assert found.recent.seconds == pytest.approx(10.3)  # ten whole seconds of the clock and the begun one
    assert found.recent.num_ended == 10
    assert found.failures == {"closed": 10}


def test_what_is_told_late_is_counted_where_it_belongs() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.set_planned(None, None)
    clock.now_ns = START_NS + 60 * S
    for ended_s in (59, 1, 58, 30):
        progress.add(sample(START_NS + ended_s * S))
    found = progress.snapshot()
    assert (found.whole.num_ended, found.recent.num_ended) == (4, 2)


def test_memory_does_not_grow_with_the_run() -> None:
    progress = Progress(Clock())
    for second in range(3 * WINDOW_S):
        progress.add(sample(START_NS + second * S))
    assert len(progress._seconds) == WINDOW_S + 1


def test_what_takes_longer_than_an_hour_is_not_lost() -> None:
    progress = Progress(Clock())
    progress.add(sample(ttft=10_000 * S))
    assert progress.snapshot().whole.ttft.percentiles["p50"] == pytest.approx(3_600_000, rel=0.001)


def test_nothing_yet_is_no_error() -> None:
    found = Progress(Clock()).snapshot()
    assert (found.whole.seconds, found.whole.num_ended, found.num_running) == (0, 0, 0)
    assert found.whole.answered_s is found.offered_s is found.share_done is found.left_s is None
    assert set(found.whole.ttft.percentiles.values()) == {None}


def after(num_ended: int, seconds: float, num_requests: int | None, duration_s: int | None) -> Snapshot:
    clock = Clock()
    progress = Progress(clock)
    progress.set_planned(num_requests, None if duration_s is None else duration_s * S)
    clock.now_ns = START_NS + round(seconds * S)
    for _ in range(num_ended):
        progress.add(sample(clock.now_ns))
    return progress.snapshot()


@pytest.mark.parametrize(
    ("num_ended", "seconds", "num_requests", "duration_s", "share", "left_s"),
    [
        (20, 4, 100, None, 0.2, 16),
        (0, 4, 100, None, 0, None),
        (100, 4, 100, None, 1, 0),
        (20, 4, None, 10, 0.4, 6),
        (20, 14, None, 10, 1, 0),
        (20, 4, 100, 10, 0.4, 6),
        (80, 4, 100, 10, 0.8, 1),
        (20, 4, None, None, None, None),
        (3, 4, 0, None, 1, 0),
    ],
)
def test_the_end_is_whichever_comes_first(
    num_ended: int,
    seconds: float,
    num_requests: int | None,
    duration_s: int | None,
    share: float | None,
    left_s: float | None,
) -> None:
    found = after(num_ended, seconds, num_requests, duration_s)
    assert found.share_done == share
    assert found.left_s == (None if left_s is None else pytest.approx(left_s))


def test_the_end_is_told_by_the_rate_of_late() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.set_planned(1000, None)
    for second in range(100):  # one a second, then five
        clock.now_ns = START_NS + second * S
        for _ in range(1 if second < 60 else 5):
            progress.add(sample(clock.now_ns))
    clock.now_ns = START_NS + 100 * S
    left_s = progress.snapshot().left_s
    assert left_s is not None
    assert math.isclose(left_s, (1000 - 260) / 5, rel_tol=0.05)


def test_the_number_in_flight_is_asked_for_where_somebody_knows() -> None:
    progress = Progress(Clock())
    numbers = iter((4, 5))
    progress.follow(lambda: next(numbers))
    assert [progress.snapshot().num_running for _ in range(2)] == [4, 5]
    progress.set_running(7)
    assert progress.snapshot().num_running == 7
