import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.policy import Throttling
from headway.client.throttle import Throttle, reject_probability
from headway.core.clock import NS_PER_S


@pytest.mark.parametrize(
    ("requests", "accepts", "expected"),
    [(0, 0, 0), (10, 10, 0), (10, 5, 0), (9, 0, 0.9), (99, 25, 0.49), (100, 50, 0)],
)
def test_the_books_formula(requests: int, accepts: int, expected: float) -> None:
    assert reject_probability(requests, accepts, 2) == pytest.approx(expected)


def test_an_endpoint_that_refuses_everything_is_held_back_from_but_not_wholly() -> None:
    throttle = Throttle(Throttling(min_requests=10))
    assert [throttle.admits(0, 0.0) for _ in range(10)] == [True] * 10
    assert not throttle.admits(0, 0.9)  # 10 / 11
    assert throttle.admits(0, 0.95)


def test_it_forgets_what_is_older_than_the_window() -> None:
    throttle = Throttle(Throttling(min_requests=1, probe_s=1000))
    for _ in range(50):
        throttle.admits(0, 0.0)
    assert not throttle.admits(119 * NS_PER_S, 0.5)
    assert throttle.admits(121 * NS_PER_S, 0.6)  # of the 51, one is left: 1 / 2


def test_one_a_second_is_always_sent() -> None:
    throttle = Throttle(Throttling(min_requests=1))
    sent = [throttle.admits(tenth * NS_PER_S // 10, 0.0) for tenth in range(600)]
    assert sum(sent) == 60


def test_who_answers_is_never_held_back() -> None:
    throttle = Throttle(Throttling(min_requests=1))
    for second in range(300):
        assert throttle.admits(second * NS_PER_S, 0.0)
        throttle.accepted(second * NS_PER_S)


@given(st.lists(st.tuples(st.integers(0, 10 * NS_PER_S), st.booleans()), max_size=200))
def test_counts_are_those_of_the_window(calls: list[tuple[int, bool]]) -> None:
    throttle = Throttle(Throttling(window_s=60, min_requests=1, probe_s=1e6))
    seen: list[tuple[int, bool]] = []
    now_ns = 0
    for number, (gap_ns, accepted) in enumerate(calls):
        now_ns += gap_ns
        oldest = now_ns // NS_PER_S - 60
        recent = [took for at_ns, took in seen if at_ns // NS_PER_S > oldest]
        chance = reject_probability(len(recent), sum(recent), 2)
        draw = chance if number % 2 else max(0.0, chance - 0.001)  # just sent, just held back
        assert throttle.admits(now_ns, draw) == (number == 0 or draw >= chance)
        seen.append((now_ns, accepted))
        if accepted:
            throttle.accepted(now_ns)
