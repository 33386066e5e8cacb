"""Tokens a minute: reserved, settled once, never more than a bucket holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.flow.budget import TRANSITIONS, Holds, Move, State, Verdict, reserve, settle
from headway.flow.gate import Gate
from headway.flow.rate import Bucket, full


def a_minute(tokens: int = 600) -> Bucket:
    return full(0, tokens / 60, tokens)


def test_what_is_not_used_comes_back() -> None:
    bucket, verdict, _ = reserve(a_minute(), 500, 600)
    assert (verdict, bucket.level) == (Verdict.GRANTED, 100)
    assert settle(bucket, 500, 120).level == 480


def test_too_few_tokens_are_waited_for() -> None:
    bucket, _, _ = reserve(a_minute(), 500, 600)
    same, verdict, wait_ns = reserve(bucket, 150, 600)
    assert (same, verdict, wait_ns) == (bucket, Verdict.LATER, 5 * NS_PER_S)
    assert reserve(bucket.at(wait_ns, 10, 600), 150, 600)[1] is Verdict.GRANTED


def test_what_exceeds_the_whole_budget_is_refused_for_good() -> None:
    assert reserve(a_minute(), 601, 600)[1] is Verdict.NEVER
    assert reserve(a_minute(), 600, 600)[1] is Verdict.GRANTED


def test_a_part_of_a_budget_grants_what_the_whole_would_and_owes() -> None:
    part, verdict, _ = reserve(a_minute(200), 500, 600)
    assert (verdict, part.level) == (Verdict.GRANTED, -300)
    assert reserve(part, 10, 600)[1] is Verdict.LATER


def test_a_refund_after_its_minute_gives_no_second_one() -> None:
    bucket, _, _ = reserve(a_minute(), 600, 600)
    later = bucket.at(90 * NS_PER_S, 10, 600)
    assert settle(later, 600, 0).level == 600


def test_what_was_used_beyond_the_reservation_is_owed() -> None:
    bucket, _, _ = reserve(a_minute(), 600, 600)
    assert settle(bucket, 600, 700).level == -100


def test_a_reservation_is_settled_once() -> None:
    holds = Holds()
    holds.hold("a", 500)
    assert holds.move("a", Move.SETTLE) == 500
    assert holds.move("a", Move.SETTLE) is None
    assert holds.move("never", Move.SETTLE) is None
    assert len(holds) == 0
    assert all(state is State.SETTLED for state in TRANSITIONS.values())
    assert not any(state is State.SETTLED for state, _ in TRANSITIONS)


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600), st.integers(0, 30)), max_size=40))
def test_nobody_uses_more_than_a_bucket_and_its_refill(calls: list[tuple[int, int, int]]) -> None:
    bucket, now_ns, used = a_minute(), 0, 0
    for wanted, spent, wait_s in calls:
        now_ns += wait_s * NS_PER_S
        bucket, verdict, _ = reserve(bucket.at(now_ns, 10, 600), wanted, 600)
        if verdict is Verdict.GRANTED:
            used += min(wanted, spent)
            bucket = settle(bucket, wanted, min(wanted, spent))
        assert 0 <= bucket.level <= 600
    assert used <= 600 + 10 * now_ns / NS_PER_S + 1e-6


def test_a_gate_counts_each_call_once() -> None:
    gate = Gate()
    for name in ("a", "b", "a"):
        gate.enter(name)
    assert len(gate) == 2
    assert not gate.has_room(2)
    assert gate.has_room(3)
    assert gate.has_room(None)
    gate.leave("a")
    gate.leave("a")
    assert len(gate) == 1


@pytest.mark.parametrize("wanted", [0, 1, 599, 600])
def test_a_reservation_settled_with_nothing_used_changes_nothing(wanted: int) -> None:
    bucket, _, _ = reserve(a_minute(), wanted, 600)
    assert settle(bucket, wanted, 0) == a_minute()
