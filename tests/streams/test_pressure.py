import msgspec
import pytest

from headway.core.clock import NS_PER_S
from headway.streams.limits import Shares, StreamLimits, Usage, fits, has_room
from headway.streams.pressure import PATIENCE_NS, Pressure, after_attempt, patience_left_ns


@pytest.mark.parametrize("key", StreamLimits.__struct_fields__)
def test_a_limit_of_nothing_and_an_unknown_one_are_refused_by_name(key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({key: 0}, StreamLimits)
    with pytest.raises(msgspec.ValidationError, match=f"{key}x"):
        msgspec.convert({f"{key}x": 1}, StreamLimits)


def test_a_full_log_pauses_until_patience_ends_and_room_starts_it_afresh() -> None:
    pressure, answer = after_attempt(Pressure(), accepted=False, now_ns=5)
    assert (answer, patience_left_ns(pressure, 5)) == ("pause", PATIENCE_NS)
    pressure, answer = after_attempt(pressure, accepted=False, now_ns=5 + PATIENCE_NS - 1)
    assert (answer, patience_left_ns(pressure, 5 + PATIENCE_NS - 1)) == ("pause", 1)
    assert after_attempt(pressure, accepted=False, now_ns=5 + PATIENCE_NS)[1] == "fail"
    pressure, answer = after_attempt(pressure, accepted=True, now_ns=29 * NS_PER_S)
    assert (pressure, answer) == (Pressure(), "go_on")


def test_bounds_hold_for_one_stream_and_all_and_an_empty_stream_takes_what_all_have_room_for() -> None:
    limits = StreamLimits(max_events=4, max_bytes=10, max_total_events=20, max_total_bytes=50)

    def may(num_events: int, num_bytes: int, stream: tuple[int, int], total: tuple[int, int]) -> bool:
        alone = Shares(Usage(*total), Usage(*total), 1)
        return fits(num_events, num_bytes, Usage(*stream), alone, limits)

    assert may(3, 9, (1, 1), (1, 1))
    assert not may(4, 1, (1, 1), (1, 1))
    assert not may(1, 10, (1, 1), (1, 1))
    assert may(20, 50, (0, 0), (0, 0))
    assert not may(21, 1, (0, 0), (0, 0))
    assert not may(1, 51, (0, 0), (0, 0))
    assert not may(1, 1, (1, 1), (20, 1))


def test_an_owner_has_whatever_there_is_until_it_is_crowded_and_then_an_equal_part() -> None:
    assert has_room(75, 0, 0, 100, 4)
    assert not has_room(76, 0, 0, 100, 4)
    assert has_room(25, 0, 70, 100, 4)
    assert not has_room(26, 0, 70, 100, 4)
    assert not has_room(1, 25, 75, 100, 4)
    assert has_room(100, 0, 0, 100, 1)
    assert not has_room(1, 0, 100, 100, 4)
