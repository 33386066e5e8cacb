import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS
from headway.streams.delivery import (
    MAX_LOSSES,
    MAX_UNACKNOWLEDGED,
    MIN_WAIT_NS,
    RESENDING,
    TRANSITIONS,
    Action,
    Delivery,
    IllegalInput,
    Leave,
    Resend,
    Send,
    Stalled,
)
from headway.streams.record import EventKind
from headway.streams.round_trip import RoundTrip

MS = NS_PER_MS


def attached(*kinds: EventKind, at_ms: int = 0) -> Delivery:
    delivery = Delivery()
    delivery.attach(0, at_ms * MS)
    for seq, kind in enumerate(kinds, 1):
        assert delivery.numbered(seq, kind, at_ms * MS) == [Send(seq)]
    return delivery


def run(delivery: Delivery, until_ms: int = 10**9) -> list[tuple[int, Action]]:
    """What happens, and when in milliseconds, if nobody says anything."""
    happened: list[tuple[int, Action]] = []
    while (deadline_ns := delivery.deadline_ns()) is not None and deadline_ns <= until_ms * MS:
        assert delivery.tick(deadline_ns - 1) == []
        actions = delivery.tick(deadline_ns)
        assert actions, "a deadline without an action"
        happened += [(deadline_ns // MS, action) for action in actions]
    return happened


def test_content_is_sent_again_after_300_and_450_ms_and_left_after_the_third_loss() -> None:
    delivery = attached("content")
    assert run(delivery) == [
        (300, Stalled()),
        (300, Resend(1)),
        (750, Stalled()),
        (750, Resend(1)),
        (1425, Leave()),
    ]
    assert delivery.state == "left"


def test_control_is_sent_again_every_300_ms() -> None:
    assert run(attached("control")) == [
        (300, Stalled()),
        (300, Resend(1)),
        (600, Stalled()),
        (600, Resend(1)),
        (900, Leave()),
    ]


def resends(kind: EventKind) -> int:
    """How often an event of `kind` is sent again behind one whose acknowledgement ends each row of losses."""
    delivery = Delivery()
    delivery.attach(0, 0)
    now_ns = count = 0
    for seq in range(1, 20):
        delivery.numbered(seq, "content", now_ns)
    delivery.numbered(20, kind, now_ns)
    for seq in range(1, 20):
        for _ in range(2):
            deadline_ns = delivery.deadline_ns()
            assert deadline_ns is not None
            now_ns = deadline_ns
            count += delivery.tick(now_ns).count(Resend(20))
        delivery.acknowledged(seq, now_ns)
    return count


def test_each_kind_is_sent_again_so_often_and_no_oftener() -> None:
    assert (resends("content"), resends("control"), resends("error")) == (2, 5, 5)


def test_an_acknowledgement_ends_the_row_of_losses_and_restarts_the_waiting() -> None:
    delivery = attached("content", "content")
    assert [action for _, action in run(delivery, 800)] == [
        Stalled(), Resend(1), Resend(2), Stalled(), Resend(1), Resend(2),
    ]  # fmt: skip
    delivery.acknowledged(1, 900 * MS)
    assert delivery.state == "flowing"
    assert run(delivery) == [(1575, Stalled()), (2250, Stalled()), (2925, Leave())]


def test_after_it_left_new_events_go_out_once_and_an_acknowledgement_brings_it_back() -> None:
    delivery = attached("control")
    run(delivery)
    assert delivery.numbered(2, "control", 1000 * MS) == [Send(2)]
    assert delivery.deadline_ns() is None
    assert delivery.tick(10**6 * MS) == []
    delivery.acknowledged(1, 2000 * MS)
    assert delivery.state == "flowing"
    assert run(delivery, 2300) == [(2300, Stalled()), (2300, Resend(2))]


def test_nothing_is_sent_again_while_the_buffer_holds_bytes_and_waiting_begins_when_they_left() -> None:
    delivery = attached("content")
    delivery.buffer(is_empty=False, now_ns=0)
    assert delivery.deadline_ns() is None
    assert delivery.tick(5000 * MS) == []
    assert delivery.state == "flowing"
    delivery.buffer(is_empty=True, now_ns=5000 * MS)
    assert run(delivery, 5300) == [(5300, Stalled()), (5300, Resend(1))]


def test_waiting_lasts_two_smoothed_round_trips_at_least() -> None:
    delivery = attached("control")
    delivery.acknowledged(1, 400 * MS)
    assert delivery.smoothed_round_trip_ns == 400 * MS
    delivery.numbered(2, "control", 400 * MS)
    assert delivery.deadline_ns() == 1200 * MS
    delivery.acknowledged(2, 880 * MS)  # 480 ms: 7/8 of 400 and 1/8 of 480
    assert delivery.smoothed_round_trip_ns == 410 * MS


def test_what_was_sent_twice_is_no_measure_of_the_round_trip() -> None:
    delivery = attached("control")
    run(delivery, 300)
    delivery.acknowledged(1, 301 * MS)
    assert delivery.smoothed_round_trip_ns is None


def test_a_new_connection_begins_with_nothing_sent_and_forgets_the_old_path() -> None:
    delivery = attached("content", "content", "content")
    delivery.acknowledged(1, 400 * MS)
    run(delivery)
    delivery.detach()
    assert (delivery.state, delivery.num_free, delivery.deadline_ns()) == ("detached", 0, None)
    assert delivery.acknowledged(3, 0) == []
    delivery.attach(1, 9000 * MS)
    assert (delivery.acked, delivery.sent, delivery.smoothed_round_trip_ns) == (1, 1, None)
    assert delivery.numbered(2, "content", 9000 * MS) == [Send(2)]
    assert delivery.deadline_ns() == 9300 * MS


def test_acknowledgements_that_are_old_change_nothing() -> None:
    delivery = attached("content", "content")
    delivery.acknowledged(1, 10 * MS)
    for seq in (0, 1):
        delivery.acknowledged(seq, 200 * MS)
    assert (delivery.acked, delivery.deadline_ns()) == (1, 310 * MS)


def test_what_an_earlier_connection_brought_after_all_is_not_sent_again() -> None:
    delivery = attached("content")
    delivery.acknowledged(5, 10 * MS)
    assert (delivery.acked, delivery.sent, delivery.deadline_ns()) == (5, 5, None)
    assert delivery.smoothed_round_trip_ns is None
    assert delivery.numbered(6, "content", 20 * MS) == [Send(6)]


def test_events_follow_each_other_and_are_bounded() -> None:
    delivery = attached("content")
    for seq in (1, 3):
        with pytest.raises(IllegalInput):
            delivery.numbered(seq, "content", 0)
    for seq in range(2, MAX_UNACKNOWLEDGED + 1):
        delivery.numbered(seq, "content", 0)
    assert delivery.num_free == 0
    with pytest.raises(IllegalInput):
        delivery.numbered(MAX_UNACKNOWLEDGED + 1, "content", 0)
    delivery.acknowledged(5, 0)
    assert delivery.num_free == 5


def test_what_cannot_happen_is_an_error() -> None:
    delivery = Delivery()
    with pytest.raises(IllegalInput):
        delivery.detach()
    with pytest.raises(IllegalInput):
        delivery.numbered(1, "content", 0)


def test_every_state_of_the_table_can_be_left_and_leads_to_one_of_it() -> None:
    for following in TRANSITIONS.values():
        assert set(following.values()) <= set(TRANSITIONS)
        assert following["attach"] == "flowing"


inputs = st.lists(
    st.one_of(
        st.sampled_from(["content", "control", "error"]),
        st.tuples(st.just("ack"), st.integers(0, 12)),
        st.tuples(st.just("wait"), st.integers(0, 900)),
        st.sampled_from(["busy", "idle", "detach", "attach"]),
    ),
    max_size=60,
)


@given(inputs)
def test_whatever_happens_the_rules_hold(happenings: list[str | tuple[str, int]]) -> None:
    delivery = Delivery()
    now_ns = 0
    kinds: dict[int, EventKind] = {}
    sent_at: dict[int, list[int]] = {}
    busy = False
    quiet_since = 0
    num_losses = 0
    for happened in [*happenings, ("wait", 5000)]:
        actions: list[Action] = []
        if happened == "attach":
            delivery.attach(delivery.acked, now_ns)
            sent_at, busy, quiet_since, num_losses = {}, False, now_ns, 0
        elif happened == "detach":
            if delivery.state != "detached":
                delivery.detach()
        elif happened in ("busy", "idle"):
            quiet_since = now_ns if busy and happened == "idle" else quiet_since
            busy = happened == "busy"
            delivery.buffer(is_empty=not busy, now_ns=now_ns)
        elif happened in RESENDING and delivery.num_free:
            kinds[delivery.sent + 1] = happened
            actions = delivery.numbered(delivery.sent + 1, happened, now_ns)
        elif happened[0] == "ack" and isinstance(happened[1], int):
            before = delivery.acked
            delivery.acknowledged(happened[1], now_ns)
            if delivery.acked > before:
                quiet_since, num_losses = now_ns, 0
        elif happened[0] == "wait" and isinstance(happened[1], int):
            until_ns = now_ns + happened[1] * MS
            while (due := delivery.deadline_ns()) is not None and due <= until_ns:
                now_ns = max(now_ns, due)
                step = delivery.tick(now_ns)
                assert step
                numbers = [action.seq for action in step if isinstance(action, Resend)]
                assert numbers == sorted(numbers)
                assert not busy
                num_losses += sum(isinstance(action, Stalled | Leave) for action in step)
                assert num_losses <= MAX_LOSSES
                assert (Leave() in step) == (num_losses == MAX_LOSSES)
                for seq in numbers:
                    assert delivery.acked < seq <= delivery.sent
                    rule = RESENDING[kinds[seq]]
                    waits = len(sent_at[seq]) - 1
                    assert waits < rule.max_resends
                    assert now_ns - max(sent_at[seq][-1], quiet_since) >= int(
                        MIN_WAIT_NS * rule.factor**waits
                    )
                    sent_at[seq].append(now_ns)
            now_ns = until_ns
        for action in actions:
            assert isinstance(action, Send)
            assert action.seq not in sent_at
            sent_at[action.seq] = [now_ns]


def test_round_trips_are_smoothed_as_by_tcp() -> None:
    estimate = RoundTrip()
    for sample_ms in (100, 100, 180):
        estimate = estimate.after(sample_ms * MS)
    assert estimate.smoothed_ns == 110 * MS
