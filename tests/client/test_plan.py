"""What a call does next: single decisions, and whole calls against endpoints that do anything at any time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.failure import Failure, Kind
from headway.client.plan import (
    Abandon,
    GiveUp,
    Situation,
    Start,
    Try,
    Wait,
    next_move,
    pause_ns,
    resume_at,
    too_slow,
)
from headway.core.clock import NS_PER_MS, NS_PER_S

BUSY = Failure(kind=Kind.BUSY, message="busy", status=503)
MISTAKE = Failure(kind=Kind.MISTAKE, message="wrong", status=400)
LIMITED = Failure(kind=Kind.LIMITED, message="limited", status=429, retry_after_ns=NS_PER_S)


def ms(value: float) -> int:
    return round(value * NS_PER_MS)


def at(now_ms: float, *tries: Try, num_endpoints: int = 2, **changes: object) -> Situation:
    fields: dict[str, object] = {
        "now_ns": ms(now_ms),
        "deadline_ns": ms(4000),
        "patience_ns": (None,) * num_endpoints,
        "tries": tries,
        "retries_left": 5,
        "hedge_after_ns": (None,) * num_endpoints,
        "jitter": 0.5,
    }
    return Situation(**(fields | changes))  # type: ignore[arg-type]


def running(endpoint: int = 0, start_ms: float = 0, until_ms: float = 2000) -> Try:
    return Try(endpoint=endpoint, why="first", start_ns=ms(start_ms), until_ns=ms(until_ms))


def failed(endpoint: int, end_ms: float, failure: Failure = BUSY) -> Try:
    return replace(running(endpoint), end_ns=ms(end_ms), failure=failure)


def test_the_first_endpoint_gets_half_of_the_time_and_the_last_all_that_is_left() -> None:
    assert next_move(at(0)) == Start(0, "first", ms(2000))
    assert next_move(at(2000, failed(0, 2000, too_slow()))) == Start(1, "fallback", ms(4000))
    assert next_move(at(0, num_endpoints=1)) == Start(0, "first", ms(4000))


def test_an_endpoint_may_have_patience_of_its_own() -> None:
    assert next_move(at(0, patience_ns=(ms(300), None))) == Start(0, "first", ms(300))
    assert next_move(at(0, patience_ns=(ms(9000), None))) == Start(0, "first", ms(4000))


def test_a_try_runs_until_its_time_is_up() -> None:
    assert next_move(at(10, running())) == Wait(ms(2000))
    assert next_move(at(2000, running())) == Abandon(0)


def test_after_a_failure_the_next_of_the_chain_is_asked_at_once() -> None:
    assert next_move(at(10, failed(0, 10))) == Start(1, "fallback", ms(4000))


def test_a_call_that_is_wrong_is_put_to_nobody_else() -> None:
    assert next_move(at(10, failed(0, 10, MISTAKE))) == GiveUp(MISTAKE)


def test_when_all_have_failed_the_first_that_may_is_asked_again_after_a_pause() -> None:
    both = (failed(0, 10), failed(1, 20))
    assert next_move(at(20, *both)) == Wait(ms(110))
    assert next_move(at(110, *both)) == Start(0, "retry", ms(4000))


def test_retry_after_is_kept_and_never_past_the_deadline() -> None:
    limited = failed(0, 10, LIMITED)
    assert next_move(at(10, limited, num_endpoints=1)) == Wait(ms(1010))
    late = failed(0, 10, replace(LIMITED, retry_after_ns=ms(3990)))
    assert next_move(at(10, late, num_endpoints=1)) == GiveUp(late.failure or BUSY)


def test_the_endpoints_own_word_on_asking_again_counts() -> None:
    never = replace(BUSY, may_retry=False)
    assert next_move(at(10, failed(0, 10, never), num_endpoints=1)) == GiveUp(never)
    told = Failure(kind=Kind.ELSEWHERE, message="", status=404, may_retry=True)
    assert next_move(at(200, failed(0, 10, told), num_endpoints=1)) == Start(0, "retry", ms(4000))


def test_no_budget_no_retry() -> None:
    assert next_move(at(500, failed(0, 10), num_endpoints=1, retries_left=0)) == GiveUp(BUSY)


def test_a_late_first_token_is_hedged_once_with_the_next_endpoint_or_the_same() -> None:
    usual = (ms(500), ms(500))
    assert next_move(at(10, running(), hedge_after_ns=usual)) == Wait(ms(500))
    assert next_move(at(500, running(), hedge_after_ns=usual)) == Start(1, "hedge", ms(4000))
    alone = at(500, running(until_ms=4000), num_endpoints=1, hedge_after_ns=usual[:1])
    assert next_move(alone) == Start(0, "hedge", ms(4000))
    hedge = replace(running(1, 500, 4000), why="hedge")
    assert next_move(at(600, running(), hedge, hedge_after_ns=usual)) == Wait(ms(2000))
    lost = replace(hedge, end_ns=ms(700), failure=BUSY)
    assert next_move(at(700, running(), lost, hedge_after_ns=usual)) == Wait(ms(2000))


def test_at_the_deadline_the_call_ends_with_what_says_most() -> None:
    assert next_move(at(4000, running(until_ms=4000), num_endpoints=1)) == GiveUp(too_slow())
    assert next_move(at(4000, failed(0, 10, LIMITED), running(1, 10, 4000))) == GiveUp(LIMITED)


@pytest.mark.parametrize(
    ("num_failures", "left", "expected"), [(1, 5, 0), (2, 5, 100), (3, 5, 300), (4, 1, 900), (2, 0, None)]
)
def test_a_cut_stream_is_resumed_at_once_then_after_growing_pauses(
    num_failures: int, left: int, expected: float | None
) -> None:
    cut = Failure(kind=Kind.CUT, message="cut")
    at_ns = resume_at(0, ms(10_000), num_failures, left, cut, 0.5)
    assert at_ns == (None if expected is None else ms(expected))


def test_a_cut_stream_is_not_resumed_past_the_deadline_or_against_the_servers_word() -> None:
    cut = Failure(kind=Kind.CUT, message="cut")
    assert resume_at(0, ms(100), 2, 5, cut, 0.5) is None
    assert resume_at(0, ms(9000), 1, 5, LIMITED, 0.5) == NS_PER_S
    assert resume_at(0, ms(9000), 1, 5, replace(cut, may_retry=False), 0.5) is None


def test_pauses_are_spread_by_a_quarter() -> None:
    assert (pause_ns(1, 0.0), pause_ns(1, 0.5)) == (ms(75), ms(100))


# A call against a world that does anything.

failures = st.builds(
    Failure,
    kind=st.sampled_from(Kind),
    message=st.just(""),
    retry_after_ns=st.none() | st.integers(0, ms(5000)),
    may_retry=st.none() | st.booleans(),
)
fates = st.tuples(st.integers(0, ms(6000)), st.none() | failures)
"""When a try ends after its start, and how; None = with a first token."""


@given(
    num_endpoints=st.integers(1, 3),
    patience_ns=st.lists(st.none() | st.integers(1, ms(5000)), min_size=3, max_size=3),
    hedge_ns=st.lists(st.none() | st.integers(0, ms(3000)), min_size=3, max_size=3),
    ends=st.lists(fates, min_size=16, max_size=16),
    retries=st.integers(0, 6),
    jitter=st.floats(0, 1, exclude_max=True),
)
def test_every_call_ends_by_its_deadline_within_its_budget(
    num_endpoints: int,
    patience_ns: list[int | None],
    hedge_ns: list[int | None],
    ends: list[tuple[int, Failure | None]],
    retries: int,
    jitter: float,
) -> None:
    deadline_ns = ms(4000)
    now_ns, left = 0, retries
    tries: list[Try] = []
    due: dict[int, tuple[int, Failure | None]] = {}
    answered = False
    for _ in range(100):
        for number, (end_ns, failure) in list(due.items()):
            if end_ns <= now_ns:
                del due[number]
                if failure is None:
                    answered = True
                else:
                    tries[number] = replace(tries[number], end_ns=now_ns, failure=failure)
        if answered:
            break
        move = next_move(
            Situation(
                now_ns=now_ns,
                deadline_ns=deadline_ns,
                patience_ns=tuple(patience_ns[:num_endpoints]),
                tries=tuple(tries),
                retries_left=left,
                hedge_after_ns=tuple(hedge_ns[:num_endpoints]),
                jitter=jitter,
            )
        )
        match move:
            case Start(endpoint, why, until_ns):
                assert now_ns < until_ns <= deadline_ns
                assert len(due) < 2
                if why in ("first", "fallback"):
                    assert not due
                    assert endpoint not in [each.endpoint for each in tries]
                left -= why == "retry"
                fate_ns, failure = ends[len(tries)]
                due[len(tries)] = (now_ns + fate_ns, failure)
                tries.append(Try(endpoint=endpoint, why=why, start_ns=now_ns, until_ns=until_ns))
            case Abandon(number):
                del due[number]
                tries[number] = replace(tries[number], end_ns=now_ns, failure=too_slow())
            case Wait(until_ns):
                assert now_ns < until_ns <= deadline_ns
                now_ns = min([until_ns, *(end_ns for end_ns, _ in due.values())])
            case GiveUp():
                break
    else:
        raise AssertionError("it never ends")
    assert now_ns <= deadline_ns
    assert left >= 0
    assert sum(each.why == "hedge" for each in tries) <= 1
    assert len(tries) <= num_endpoints + retries + 1
