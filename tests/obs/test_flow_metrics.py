from headway.core.events import (
    CallRefused,
    Event,
    FlowDegraded,
    RiskAssessed,
    StreamAbandoned,
    StreamResent,
    StreamResumed,
    TokensSettled,
)
from headway.obs.metrics import Metrics


def page(*events: Event) -> list[str]:
    metrics = Metrics()
    for event in events:
        metrics(event)
    return metrics.page()[1].decode().splitlines()


def test_refusals_are_told_apart_by_class_reason_and_status() -> None:
    lines = page(
        CallRefused(reason="rate_limited", status=429),
        CallRefused(reason="rate_limited", status=429, service_class="low"),
        CallRefused(reason="queue_full", status=503),
        CallRefused(reason="queue_full", status=503),
    )
    total = "headway_refused_calls_total"
    assert f'{total}{{class="normal",reason="rate_limited",status="429"}} 1.0' in lines
    assert f'{total}{{class="low",reason="rate_limited",status="429"}} 1.0' in lines
    assert f'{total}{{class="normal",reason="queue_full",status="503"}} 2.0' in lines


def test_what_was_reserved_is_used_or_refunded() -> None:
    lines = page(TokensSettled(reserved=100, used=30), TokensSettled(reserved=10, used=12))
    assert 'headway_settled_tokens_total{class="normal"} 42.0' in lines
    assert 'headway_refunded_tokens_total{class="normal"} 70.0' in lines


def test_limits_that_stand_in_show_while_they_do_and_are_counted_once() -> None:
    lost, back = FlowDegraded(degraded=True), FlowDegraded(degraded=False)
    assert {"headway_flow_degraded 0.0", "headway_flow_degradations_total 0.0"} <= set(page())
    assert {"headway_flow_degraded 1.0", "headway_flow_degradations_total 1.0"} <= set(page(lost, lost))
    assert {"headway_flow_degraded 0.0", "headway_flow_degradations_total 2.0"} <= set(
        page(lost, back, lost, back)
    )


def test_risk_is_counted_by_bucket() -> None:
    lines = page(RiskAssessed(risk=0.0), RiskAssessed(risk=0.5), RiskAssessed(risk=2.0))
    counts = [line.rpartition(" ")[2] for line in lines if line.startswith("headway_caller_risk_bucket")]
    assert counts == ["1.0", "1.0", "2.0", "2.0", "2.0", "3.0", "3.0"]
    assert "headway_caller_risk_sum 2.5" in lines


def test_streams_that_were_resumed_sent_again_and_abandoned() -> None:
    lines = page(
        StreamResumed(replayed=7),
        StreamResumed(resync=True),
        StreamResent(kind="content", num_events=3),
        StreamResent(kind="control"),
        StreamAbandoned(num_unacknowledged=9),
    )
    assert {
        'headway_stream_resumes_total{outcome="resumed"} 1.0',
        'headway_stream_resumes_total{outcome="resync"} 1.0',
        "headway_stream_replayed_events_total 7.0",
        'headway_stream_resent_events_total{kind="content"} 3.0',
        'headway_stream_resent_events_total{kind="control"} 1.0',
        "headway_streams_abandoned_total 1.0",
        "headway_stream_unacknowledged_events_total 9.0",
    } <= set(lines)
