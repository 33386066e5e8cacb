"""The breaker as a value: every move is in its table."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.flow.breaker import FIRST_PAUSE_NS, LAST_PAUSE_NS, MAX_FAILURES, Breaker, Phase


def opened(now_ns: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(MAX_FAILURES):
        breaker = breaker.failed(now_ns)
    return breaker


def test_failures_in_a_row_open_it_and_others_do_not() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker = breaker.failed(0).failed(0).succeeded()
    assert breaker == Breaker()
    assert opened().phase is Phase.OPEN


def test_nobody_asks_while_it_is_open_and_one_tries_afterwards() -> None:
    breaker = opened()
    assert breaker.ask(breaker.retry_at_ns - 1)[1] is False
    tried, may_ask = breaker.ask(breaker.retry_at_ns)
    assert (tried.phase, may_ask) == (Phase.HALF_OPEN, True)
    assert tried.ask(breaker.retry_at_ns)[1] is False


def test_the_one_that_tried_closes_it_or_opens_it_for_twice_as_long() -> None:
    assert opened().retry_at_ns == FIRST_PAUSE_NS
    tried, _ = opened().ask(FIRST_PAUSE_NS)
    assert tried.succeeded() == Breaker()
    again = tried.failed(FIRST_PAUSE_NS)
    assert (again.phase, again.retry_at_ns) == (Phase.OPEN, 3 * FIRST_PAUSE_NS)
    for _ in range(10):
        again = again.ask(again.retry_at_ns)[0].failed(0)
    assert again.retry_at_ns == LAST_PAUSE_NS


def test_one_that_tried_and_was_never_heard_of_is_followed_by_another() -> None:
    tried, _ = opened().ask(60 * NS_PER_S)
    assert tried.ask(tried.retry_at_ns - 1)[1] is False
    assert tried.ask(tried.retry_at_ns)[1] is True


def test_what_was_on_its_way_when_it_opened_is_no_news() -> None:
    breaker = opened()
    assert breaker.succeeded() == breaker
    assert breaker.failed(0).retry_at_ns == breaker.retry_at_ns


@given(st.lists(st.tuples(st.sampled_from(["ask", "success", "failure"]), st.integers(0, 10)), max_size=100))
def test_however_it_is_used_it_asks_again_within_the_longest_pause(events: list[tuple[str, int]]) -> None:
    breaker, now_ns = Breaker(), 0
    for what, wait_s in events:
        now_ns += wait_s * NS_PER_S
        match what:
            case "ask":
                breaker, _ = breaker.ask(now_ns)
            case "success":
                breaker = breaker.succeeded()
            case _:
                breaker = breaker.failed(now_ns)
        assert breaker.retry_at_ns <= now_ns + LAST_PAUSE_NS
    assert breaker.ask(now_ns + LAST_PAUSE_NS)[1] is True
