import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.core.trace_parent import TraceParent
from headway.obs.sampling import MAX_SPANS_PER_S, Traffic, ratio_in, sampled_by, trace_id
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


def traffic(
    calls_per_s: int, failing: float = 0, *, seconds: int = 120, after: Traffic | None = None
) -> Traffic:
    """What is remembered of even traffic, of which each so many-th call fails."""
    found = after or Traffic()
    owed = 0.0
    for _ in range(calls_per_s * seconds):
        owed += failing
        fails = owed >= 1
        owed -= fails
        now_ns = found.at_ns + NS_PER_S // calls_per_s
        found = found.after(ended_call(status=500 if fails else 200), now_ns)
    return found


def test_in_ordinary_traffic_the_ratio_is_as_configured() -> None:
    assert ratio_in(Traffic(), 0.1) == 0.1
    assert ratio_in(traffic(100), 0.1) == 0.1
    assert traffic(100).calls_per_s == pytest.approx(100, rel=0.01)


def test_under_load_so_many_spans_are_made_a_second_and_no_more() -> None:
    assert ratio_in(traffic(1000), 0.1) == pytest.approx(MAX_SPANS_PER_S / 1000, rel=0.01)
    later = traffic(100, after=traffic(1000))
    assert ratio_in(later, 0.1) == 0.1


def test_while_calls_fail_more_of_the_others_have_a_span() -> None:
    assert ratio_in(traffic(10, failing=0.02), 0.1) == pytest.approx(0.1 + 0.9 * 0.2, abs=0.05)
    failing = traffic(10, failing=0.2)
    assert ratio_in(failing, 0.1) == 1
    assert [ratio_in(failing, base) for base in (NEVER, ALWAYS)] == [NEVER, ALWAYS]
    assert ratio_in(traffic(10, after=failing), 0.1) == pytest.approx(0.1, abs=0.01)
    assert ratio_in(traffic(1000, failing=0.2, seconds=60), 0.1) == pytest.approx(0.02, rel=0.05)


def test_one_failure_among_few_calls_is_no_alarm() -> None:
    once = Traffic().after(ended_call(status=500), NS_PER_S)
    assert ratio_in(once, 0.1) == pytest.approx(0.1 + 0.9 * 0.1)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-NS_PER_S, 10**13)), max_size=30),
    st.floats(0, 1),
)
def test_whatever_happens_the_ratio_is_one(calls: list[tuple[bool, int]], base: float) -> None:
    found, now_ns = Traffic(), 0
    for fails, wait_ns in calls:
        now_ns += wait_ns
        found = found.after(ended_call(status=500 if fails else 200), now_ns)
    ratio = ratio_in(found, base)
    assert 0 <= ratio <= 1
    assert base not in (NEVER, ALWAYS) or ratio == base
