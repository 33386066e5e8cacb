"""States and back-off of an engine client."""

import pytest

from headway.core.events import EngineState
from headway.engine.lifecycle import TRANSITIONS, Backoff, IllegalTransition, move


def test_closed_is_the_end_and_reachable_from_everywhere() -> None:
    assert not TRANSITIONS["closed"]
    assert all("closed" in targets for state, targets in TRANSITIONS.items() if state != "closed")


@pytest.mark.parametrize(
    ("current", "target"),
    [("closed", "ready"), ("draining", "ready"), ("draining", "restarting"), ("ready", "starting")],
)
def test_illegal_moves_raise(current: EngineState, target: EngineState) -> None:
    with pytest.raises(IllegalTransition):
        move(current, target)
    assert move("ready", "draining") == "draining"


def test_the_first_end_costs_no_wait_and_the_next_ones_twice_as_much_each_to_half_a_minute() -> None:
    backoff = Backoff()
    assert backoff.delay_s == 0
    delays_s = []
    for _ in range(8):
        backoff = backoff.after_end(uptime_s=59.9)
        delays_s.append(backoff.delay_s)
    assert delays_s == [0, 1, 2, 4, 8, 16, 30, 30]
    assert Backoff(10_000).delay_s == 30


def test_a_minute_of_health_starts_the_back_off_afresh() -> None:
    assert Backoff(5).after_end(uptime_s=60.0) == Backoff(1)
