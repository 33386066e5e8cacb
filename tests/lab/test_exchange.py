from typing import Any

import pytest

from headway.lab.exchange import Answer, ContradictoryRecord, Exchange, Failure, Stamps, StreamEvent

IN_ORDER: dict[str, Any] = {
    "intended_ns": 10,
    "dispatched_ns": 20,
    "written_ns": 30,
    "first_byte_ns": 40,
    "ended_ns": 60,
}


def exchange(*at_ns: int, failure: Failure | None = None, **stamps: Any) -> Exchange:
    events = tuple(StreamEvent(at_ns=at, kind="content", num_chars=1) for at in at_ns)
    return Exchange(
        stamps=Stamps(**{**IN_ORDER, **stamps}),
        answer=Answer(events=events, failure=failure),
    )


def test_stamps_in_order_make_a_record() -> None:
    assert exchange(40, 40, 60).ok
    assert exchange(20, written_ns=20, first_byte_ns=20, ended_ns=20).ok
    assert exchange(50, connect_ns=4, tls_ns=6).stamps.setup_ns == 10


def test_a_timer_that_fires_early_is_no_contradiction() -> None:
    assert exchange(50, intended_ns=25).ok


@pytest.mark.parametrize(
    ("at_ns", "stamps", "message"),
    [
        ([50], {"written_ns": 19}, "written 1 ns before dispatched"),
        ([50], {"first_byte_ns": 29}, "answered 1 ns before written"),
        ([39], {}, "an event 1 ns before answered"),
        ([50, 49], {}, "an event 1 ns before an event"),
        ([61], {}, "over 1 ns before an event"),
        ([50], {"connect_ns": 11}, "longer than"),
        ([50], {"connect_ns": 4, "tls_ns": 7}, "longer than"),
        ([50], {"tls_ns": -1}, "less than no time"),
        ([50], {"written_ns": None}, "never written"),
        ([50], {"first_byte_ns": None}, "first byte never came"),
        ([], {}, "brought no text"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    at_ns: list[int], stamps: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContradictoryRecord, match=message):
        exchange(*at_ns, **stamps)


@pytest.mark.parametrize("counts", [{"num_chars": -1}, {"num_tokens": -1}])
def test_counts_are_not_negative(counts: dict[str, int]) -> None:
    event = StreamEvent(at_ns=50, kind="content", **counts)
    with pytest.raises(ContradictoryRecord, match="less than no text"):
        Exchange(stamps=exchange(50).stamps, answer=Answer(events=(event,)))


def test_a_request_that_got_nowhere_has_few_stamps() -> None:
    failure = Failure(kind="connection", message="refused")
    failed = exchange(failure=failure, written_ns=None, first_byte_ns=None, connect_ns=40)
    assert not failed.ok
    assert failed.text_events == []
    with pytest.raises(ContradictoryRecord, match="longer than"):
        exchange(failure=failure, written_ns=None, first_byte_ns=None, connect_ns=41)
