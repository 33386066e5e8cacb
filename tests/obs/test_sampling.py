import random

import pytest

from headway.core.trace_parent import TraceParent
from headway.obs.sampling import sampled_by, trace_id
from support.ended_calls import ended_call, ended_request

NEVER, ALWAYS = 0.0, 1.0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"service_class": "high"}, "class"),
        ({"kind": "admin", "token_id": "t"}, "kind"),
        ({"status": 500}, "error"),
        ({"request": ended_request(outcome="error")}, "error"),  # within a stream
        ({"status": 503}, None),
        ({"status": 429}, None),
        ({"status": 499}, None),
        ({"service_class": "low"}, None),
        ({"kind": "admin"}, None),  # who was not asked for a token cannot be one
    ],
)
def test_what_is_critical_and_what_failed_always_has_a_span(
    fields: dict[str, object], reason: str | None
) -> None:
    assert sampled_by(ended_call(**fields), NEVER) == reason
    unrecorded = TraceParent(1, 1, sampled=False)
    assert sampled_by(ended_call(**fields, trace_parent=unrecorded), ALWAYS) == reason


@pytest.mark.parametrize(("sampled", "reason"), [(True, "parent"), (False, None)])
def test_a_parent_decides_for_the_others(sampled: bool, reason: str | None) -> None:
    call = ended_call(trace_parent=TraceParent(77, 1, sampled))
    assert [sampled_by(call, ratio) for ratio in (NEVER, ALWAYS)] == [reason, reason]
    assert trace_id(call) == 77


def test_the_ratio_holds_and_the_trace_id_alone_decides() -> None:
    draw = random.Random(1)
    calls = [ended_call(request_id=f"{draw.getrandbits(128):032x}") for _ in range(10_000)]
    decisions = [sampled_by(call, 0.1) for call in calls]
    assert 900 < decisions.count("ratio") < 1100
    assert [sampled_by(call, 0.1) for call in calls] == decisions
    assert {sampled_by(call, NEVER) for call in calls} == {None}
    assert {sampled_by(call, ALWAYS) for call in calls} == {"ratio"}
    assert trace_id(calls[0]) == int(calls[0].request_id, 16)
