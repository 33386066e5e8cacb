"""Refusals are counted apart from failures of transport, and by their codes."""

import json

from headway.lab.admission import admission, admission_json
from support.lab_runs import answered, failed
from support.scripted_stream import play


def refused(status: int, code: str | None) -> object:
    return play((1, json.dumps({"error": {"message": "later", "code": code}}).encode()), status=status)


def test_each_request_is_counted_where_it_ended() -> None:
    exchanges = [
        answered(),
        answered(),
        failed(),  # taken, then lost
        refused(503, "deadline_cannot_be_met"),
        refused(503, "deadline_cannot_be_met"),
        refused(503, "queue_full"),
        refused(429, None),
        play((1, b"no such model"), status=404),
        play(status=None, ending="closed"),  # no connection
        play(status=None, ending="silence", ended_ms=9),  # taken, as far as anybody knows
    ]
    found = admission(exchanges)  # type: ignore[arg-type]
    assert (found.num_offered, found.num_admitted, found.num_answered, found.num_refused) == (10, 4, 2, 4)
    assert list(found.refusals.items()) == [
        ((503, "deadline_cannot_be_met"), 2),
        ((429, None), 1),
        ((503, "queue_full"), 1),
    ]
    assert found.admitted_share == 0.4
    assert admission_json(found) == {
        "admitted": 4,
        "refused": 4,
        "refusals": [
            {"status": 503, "code": "deadline_cannot_be_met", "n": 2},
            {"status": 429, "code": None, "n": 1},
            {"status": 503, "code": "queue_full", "n": 1},
        ],
    }


def test_nothing_offered_has_no_share() -> None:
    assert admission([]).admitted_share is None
