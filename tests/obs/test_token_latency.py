import re
from collections.abc import Iterable

import pytest

from headway.core.caller import Kind
from headway.core.events import CallEnded, Event, FirstToken, RequestEnded
from headway.obs.config import TokenConfig
from headway.obs.metrics import Metrics
from headway.obs.token_latency import BOUNDS_S, MAX_LATENCY_SERIES

MS = 1_000_000
CHAT = "/v1/chat/completions"


def call(
    token_id: str | None = "t", took_ms: float = 5, status: int = 200, endpoint: str = CHAT, **fields: object
) -> CallEnded:
    values: dict[str, object] = {"request_id": "r", "method": "POST", **fields}
    return CallEnded(
        token_id=token_id,
        duration_ns=round(took_ms * MS),
        status=status,
        endpoint=endpoint,
        **values,  # type: ignore[arg-type]
    )


def first_token(token_id: str, ttft_ms: float, kind: Kind = "user") -> FirstToken:
    return FirstToken(request_id="r", model="m", ttft_ns=round(ttft_ms * MS), token_id=token_id, kind=kind)


def request(ttft_ms: float | None) -> RequestEnded:
    return RequestEnded(
        request_id="r",
        model="m",
        outcome="stop",
        status=200,
        usage=None,
        ttft_ns=None if ttft_ms is None else round(ttft_ms * MS),
        queue_ns=None,
        tpot_ns=None,
        e2e_ns=0,
    )


def page(events: Iterable[Event], config: TokenConfig | None = None) -> dict[str, float]:
    """Every sample by name and labels."""
    metrics = Metrics(config)
    for event in events:
        metrics(event)
    lines = metrics.page()[1].decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def test_a_call_is_counted_by_token_route_and_status() -> None:
    samples = page([call(took_ms=40), call(took_ms=60), call(status=429)])
    name, labels = "api_token_latency_seconds", f'token_id="t",endpoint="{CHAT}",status_code="200"'
    assert samples[f'{name}_bucket{{{labels},le="0.05"}}'] == 1
    assert samples[f'{name}_bucket{{{labels},le="0.1"}}'] == 2
    assert samples[f"{name}_sum{{{labels}}}"] == pytest.approx(0.1)
    assert samples[f'{name}_count{{token_id="t",endpoint="{CHAT}",status_code="429"}}'] == 1


def test_there_are_eight_buckets_and_both_thresholds_are_bounds() -> None:
    assert len(BOUNDS_S) + 1 == 8
    assert {0.05, 0.2} <= set(BOUNDS_S)


@pytest.mark.parametrize(("kind", "threshold_ms"), [("admin", 50), ("user", 200), ("service", 200)])
def test_a_call_is_slow_beyond_its_kinds_threshold(kind: Kind, threshold_ms: int) -> None:
    samples = page([first_token("t", threshold_ms, kind), first_token("t", threshold_ms + 0.001, kind)])
    assert samples[f'headway_token_timed_calls_total{{kind="{kind}",token_id="t"}}'] == 2
    assert samples[f'headway_token_slow_calls_total{{kind="{kind}",token_id="t"}}'] == 1
    assert samples[f'headway_token_latency_threshold_seconds{{kind="{kind}"}}'] == threshold_ms / 1000
    assert samples['headway_token_ttft_seconds_count{token_id="t"}'] == 2


def test_thresholds_can_be_set() -> None:
    config = TokenConfig(alarm_ms={"admin": 1, "user": 2, "service": 3})
    samples = page([first_token("t", 2.5)], config)
    assert samples['headway_token_slow_calls_total{kind="user",token_id="t"}'] == 1
    assert samples['headway_token_latency_threshold_seconds{kind="service"}'] == 0.003


def test_a_long_answer_that_began_in_time_is_not_slow() -> None:
    samples = page([first_token("t", 100), call(took_ms=90_000, request=request(100))])
    assert samples['headway_token_timed_calls_total{kind="user",token_id="t"}'] == 1
    assert samples['headway_token_slow_calls_total{kind="user",token_id="t"}'] == 0


def test_a_call_without_tokens_is_slow_by_its_end() -> None:
    samples = page([call(took_ms=300, endpoint="/v1/models"), call(took_ms=300, request=request(None))])
    assert samples['headway_token_slow_calls_total{kind="user",token_id="t"}'] == 2


def test_who_gave_up_before_the_first_token_waited_refusals_and_mistakes_did_not() -> None:
    statuses = (400, 401, 404, 429, 500, 503)
    samples = page([call(took_ms=300, status=status) for status in statuses])
    assert not any(name.startswith("headway_token_timed_calls") for name in samples)
    samples = page([call(took_ms=300, status=499)])
    assert samples['headway_token_slow_calls_total{kind="user",token_id="t"}'] == 1


def test_tokens_have_their_kind_and_tenant_beside_them() -> None:
    events = [call("t", kind="admin", tenant="acme"), call(None), call("")]
    infos = {name for name in page(events) if name.startswith("headway_token_info")}
    assert infos == {'headway_token_info{kind="admin",tenant="acme",token_id="t"}'}


def test_strangers_share_a_name_and_their_words_are_nowhere() -> None:
    metrics = Metrics()
    metrics(call(None, status=401, tenant="", endpoint=""))
    metrics(call("hw_\n# forged 1", status=200, endpoint=""))
    text = metrics.page()[1].decode()
    assert "forged" not in text
    assert set(re.findall(r'token_id="([^"]*)"', text)) == {"_invalid", "_other"}
    assert set(re.findall(r'endpoint="([^"]*)"', text)) == {"_unknown"}


def test_the_page_does_not_grow_with_the_number_of_tokens() -> None:
    metrics = Metrics(TokenConfig(watched=frozenset({"vip"}), num_top=8))
    metrics(call("vip"))
    for number in range(100_000):
        metrics(call(f"t{number}"))
    text = metrics.page()[1].decode()
    names = set(re.findall(r'token_id="([^"]*)"', text))
    assert {"vip", "_other"} <= names
    assert len(names) <= 10
    assert text.count("\napi_token_latency_seconds_count") == len(names)


def test_a_name_that_is_given_up_takes_all_its_series_along() -> None:
    metrics = Metrics(TokenConfig(num_top=1))
    metrics(call("old"))
    metrics(first_token("old", 5))
    for _ in range(20):
        metrics(call("new"))
    text = metrics.page()[1].decode()
    assert 'token_id="new"' in text
    assert 'token_id="old"' not in text


def test_one_token_cannot_fill_the_page_with_routes_and_statuses() -> None:
    routes = [f"/route/{number}" for number in range(MAX_LATENCY_SERIES + 50)]
    samples = page([call("t", endpoint=route) for route in routes])
    series = [name for name in samples if name.startswith("api_token_latency_seconds_count")]
    assert len([name for name in series if 'token_id="t"' in name]) == MAX_LATENCY_SERIES
    assert len([name for name in series if 'token_id="_other"' in name]) == 50
