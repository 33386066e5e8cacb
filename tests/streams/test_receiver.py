import pytest

from headway.core.clock import NS_PER_MS
from headway.core.errors import ResyncRequired
from headway.streams.ids import START, Cursor
from headway.streams.receiver import ACK_AFTER_NS, Receiver

MS = NS_PER_MS


def test_events_are_taken_once_and_in_order() -> None:
    receiver = Receiver()
    verdicts = [receiver.event(Cursor(1, seq), 0) for seq in (1, 2, 2, 1, 4, 3, 4, 3)]
    assert verdicts == ["take", "take", "again", "again", "gap", "take", "take", "again"]
    assert receiver.cursor == Cursor(1, 4)


def test_a_second_drop_before_any_event_keeps_the_cursor() -> None:
    receiver = Receiver()
    assert receiver.cursor == START
    receiver.event(Cursor(1, 1), 0)
    after_first_drop = receiver.cursor
    after_second_drop = receiver.cursor
    assert after_first_drop == after_second_drop == Cursor(1, 1)
    assert receiver.event(Cursor(1, 2), 0) == "take"


def test_another_numbering_is_never_spliced_on() -> None:
    receiver = Receiver()
    receiver.event(Cursor(1, 1), 0)
    with pytest.raises(ResyncRequired):
        receiver.event(Cursor(2, 2), 0)
    assert receiver.cursor == Cursor(1, 1)
    with pytest.raises(ResyncRequired):
        Receiver(Cursor(1, 7)).event(Cursor(2, 8), 0)


def test_who_has_nothing_yet_takes_whichever_numbering_there_is() -> None:
    receiver = Receiver()
    assert receiver.event(Cursor(3, 2), 0) == "gap"
    assert receiver.event(Cursor(3, 1), 0) == "take"
    assert receiver.cursor == Cursor(3, 1)


def test_events_are_acknowledged_after_100_ms_or_16_of_them() -> None:
    receiver = Receiver()
    assert receiver.ack_due_ns() is None
    receiver.event(Cursor(1, 1), 5 * MS)
    receiver.event(Cursor(1, 2), 60 * MS)
    assert receiver.ack_due_ns() == 5 * MS + ACK_AFTER_NS
    assert receiver.take_ack(104 * MS) is None
    assert receiver.take_ack(105 * MS) == Cursor(1, 2)
    assert receiver.ack_due_ns() is None
    assert receiver.take_ack(10**9 * MS) is None
    for seq in range(3, 19):
        assert receiver.take_ack(200 * MS) is None
        receiver.event(Cursor(1, seq), 200 * MS)
    assert receiver.take_ack(200 * MS) == Cursor(1, 18)


def test_what_comes_again_is_acknowledged_at_once() -> None:
    receiver = Receiver()
    receiver.event(Cursor(1, 1), 0)
    receiver.take_ack(ACK_AFTER_NS)
    receiver.event(Cursor(1, 1), 300 * MS)
    assert receiver.take_ack(300 * MS) == Cursor(1, 1)


def test_a_heartbeat_takes_the_acknowledgement_along() -> None:
    receiver = Receiver()
    assert receiver.told() is None
    receiver.event(Cursor(1, 1), 0)
    assert receiver.told() == Cursor(1, 1)
    assert receiver.ack_due_ns() is None


def test_a_new_connection_is_told_what_the_last_one_may_have_lost() -> None:
    receiver = Receiver()
    receiver.connected(0)
    assert receiver.ack_due_ns() is None
    receiver.event(Cursor(1, 1), 0)
    assert receiver.take_ack(ACK_AFTER_NS) == Cursor(1, 1)
    receiver.connected(500 * MS)
    assert receiver.take_ack(500 * MS) == Cursor(1, 1)


def test_a_gap_is_not_acknowledged() -> None:
    receiver = Receiver()
    receiver.event(Cursor(1, 2), 0)
    assert receiver.ack_due_ns() is None
