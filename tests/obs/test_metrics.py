import pytest

from headway.core.events import (
    EngineStateChanged,
    EngineStepped,
    FirstToken,
    Outcome,
    RequestEnded,
    TokensArrived,
)
from headway.core.messages import EngineStats, Usage
from headway.obs.metrics import Metrics

MS = 1_000_000


def sample(metrics: Metrics, name: str) -> float:
    """The value of the one line that starts with `name`."""
    lines = [line for line in metrics.page()[1].decode().splitlines() if line.startswith(name + " ")]
    assert len(lines) == 1, name
    return float(lines[0].rpartition(" ")[2])


def ended(outcome: Outcome = "stop", **fields: object) -> RequestEnded:
    values: dict[str, object] = {
        "status": 200,
        "usage": Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=0),
        "ttft_ns": 5 * MS,
        "queue_ns": 2 * MS,
        "tpot_ns": 4 * MS,
        "e2e_ns": 20 * MS,
        **fields,
    }
    return RequestEnded(request_id="r", model="m", outcome=outcome, **values)  # type: ignore[arg-type]


def test_time_to_first_token_falls_into_the_bucket_whose_bound_it_reaches() -> None:
    metrics = Metrics()
    metrics(FirstToken(request_id="r", model="m", ttft_ns=20 * MS))
    name = "headway_time_to_first_token_seconds"
    assert sample(metrics, f'{name}_bucket{{class="normal",le="0.01",model="m"}}') == 0
    assert sample(metrics, f'{name}_bucket{{class="normal",le="0.02",model="m"}}') == 1
    assert sample(metrics, f'{name}_bucket{{class="normal",le="+Inf",model="m"}}') == 1
    assert sample(metrics, f'{name}_sum{{class="normal",model="m"}}') == pytest.approx(0.02)
    assert sample(metrics, f'{name}_count{{class="normal",model="m"}}') == 1


def test_each_class_has_its_own_time_to_first_token_from_the_start() -> None:
    metrics = Metrics()
    metrics(FirstToken(request_id="r", model="m", ttft_ns=20 * MS, service_class="high"))
    counts = [
        sample(metrics, f'headway_time_to_first_token_seconds_count{{class="{name}",model="m"}}')
        for name in ("high", "normal", "low")
    ]
    assert counts == [1, 0, 0]


def test_tokens_of_one_step_are_one_interval_and_zeros() -> None:
    metrics = Metrics()
    metrics(TokensArrived(request_id="r", model="m", num_tokens=3, interval_ns=30 * MS))
    name = "headway_inter_token_latency_seconds"
    assert sample(metrics, f'{name}_count{{model="m"}}') == 3
    assert sample(metrics, f'{name}_bucket{{le="0.001",model="m"}}') == 2
    assert sample(metrics, f'{name}_sum{{model="m"}}') == pytest.approx(0.03)


def test_an_ended_request_counts_its_outcome_tokens_and_times() -> None:
    metrics = Metrics()
    metrics(ended())
    metrics(ended("refused", usage=None, ttft_ns=None, queue_ns=None, tpot_ns=None, error_code="queue_full"))
    total = "headway_requests_total"
    assert sample(metrics, f'{total}{{class="normal",error="",model="m",outcome="stop"}}') == 1
    assert sample(metrics, f'{total}{{class="normal",error="queue_full",model="m",outcome="refused"}}') == 1
    assert sample(metrics, 'headway_prompt_tokens_total{model="m"}') == 7
    assert sample(metrics, 'headway_completion_tokens_total{model="m"}') == 3
    for name in ("request_queue_time", "time_per_output_token", "request_duration"):
        assert sample(metrics, f'headway_{name}_seconds_count{{model="m"}}') == 1, name


def test_refusals_are_told_apart_by_class_and_code() -> None:
    metrics = Metrics()
    refused: dict[str, object] = {
        "usage": None,
        "ttft_ns": None,
        "queue_ns": None,
        "tpot_ns": None,
        "status": 503,
    }
    for service_class, code in (("low", "deadline_unmet"), ("low", "deadline_unmet"), ("high", "queue_full")):
        metrics(ended("refused", **refused, service_class=service_class, error_code=code))
    total = "headway_requests_total"
    assert sample(metrics, f'{total}{{class="low",error="deadline_unmet",model="m",outcome="refused"}}') == 2
    assert sample(metrics, f'{total}{{class="high",error="queue_full",model="m",outcome="refused"}}') == 1


def test_a_request_that_was_cut_short_has_no_duration() -> None:
    metrics = Metrics()
    metrics(ended("cancelled", status=499))
    assert sample(metrics, 'headway_request_duration_seconds_count{model="m"}') == 0


def test_a_step_shows_the_engine_as_it_is() -> None:
    metrics = Metrics()
    stats = EngineStats(
        num_running=3,
        num_waiting=2,
        num_waiting_tokens=50,
        num_blocks=100,
        num_free_blocks=75,
        num_cached_blocks=10,
        concurrency_limit=25,
        steps_total=4,
        prefill_tokens_total=64,
        decode_tokens_total=8,
        drafted_tokens_total=7,
        accepted_tokens_total=5,
        prefix_query_tokens_total=60,
        prefix_hit_tokens_total=48,
        preemptions_total=1,
        step_ns=9 * MS,
    )
    metrics(EngineStepped(model="m", stats=stats))
    expected = {
        "requests_running": 3,
        "requests_waiting": 2,
        "tokens_waiting": 50,
        "engine_concurrency_limit": 25,
        "kv_cache_usage_ratio": 0.25,
        "kv_cache_blocks": 100,
        "prefix_cached_blocks": 10,
        "engine_steps_total": 4,
        "prefill_tokens_total": 64,
        "decode_tokens_total": 8,
        "drafted_tokens_total": 7,
        "accepted_tokens_total": 5,
        "prefix_cache_query_tokens_total": 60,
        "prefix_cache_hit_tokens_total": 48,
        "preemptions_total": 1,
        "engine_step_duration_seconds_count": 1,
    }
    assert {name: sample(metrics, f'headway_{name}{{model="m"}}') for name in expected} == expected


def test_counters_never_fall_when_an_engine_starts_again() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready"))
    metrics(EngineStepped(model="m", stats=EngineStats(steps_total=10, prefix_hit_tokens_total=160)))
    metrics(EngineStateChanged(model="m", state="restarting", reason="it died"))
    assert sample(metrics, 'headway_engine_ready{model="m"}') == 0
    assert sample(metrics, 'headway_engine_steps_total{model="m"}') == 10
    metrics(EngineStateChanged(model="m", state="ready"))
    metrics(EngineStepped(model="m", stats=EngineStats(steps_total=1, prefix_hit_tokens_total=16)))
    assert sample(metrics, 'headway_engine_steps_total{model="m"}') == 11
    assert sample(metrics, 'headway_prefix_cache_hit_tokens_total{model="m"}') == 176
    assert sample(metrics, 'headway_engine_restarts_total{model="m"}') == 1
    assert sample(metrics, 'headway_engine_ready{model="m"}') == 1


def test_the_cache_is_known_before_the_first_step() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready", num_blocks=8))
    assert sample(metrics, 'headway_kv_cache_blocks{model="m"}') == 8
    assert sample(metrics, 'headway_kv_cache_usage_ratio{model="m"}') == 0


def test_an_engine_that_died_holds_nothing() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready"))
    metrics(EngineStepped(model="m", stats=EngineStats(num_running=2, num_blocks=8, steps_total=1)))
    metrics(EngineStateChanged(model="m", state="restarting", reason="it died"))
    assert sample(metrics, 'headway_requests_running{model="m"}') == 0
    assert sample(metrics, 'headway_kv_cache_usage_ratio{model="m"}') == 0
    metrics(EngineStateChanged(model="m", state="ready"))
    metrics(EngineStepped(model="m", stats=EngineStats(steps_total=1)))  # as many as the one before
    assert sample(metrics, 'headway_engine_steps_total{model="m"}') == 2


def test_models_have_series_of_their_own() -> None:
    metrics = Metrics()
    metrics(FirstToken(request_id="r", model="a", ttft_ns=MS))
    metrics(FirstToken(request_id="s", model="b", ttft_ns=MS))
    for model in "ab":
        labels = f'class="normal",model="{model}"'
        assert sample(metrics, f"headway_time_to_first_token_seconds_count{{{labels}}}") == 1


def test_two_registries_share_nothing() -> None:
    first, second = Metrics(), Metrics()
    first(FirstToken(request_id="r", model="m", ttft_ns=MS))
    assert b'model="m"' not in second.page()[1]
    assert second.page()[0].startswith("text/plain")


def test_what_tiers_moved_does_not_fall_when_the_engine_is_restarted() -> None:
    metrics = Metrics()
    metrics(EngineStateChanged(model="m", state="ready"))
    stats = EngineStats(
        num_sessions_active=1,
        num_sessions_idle=2,
        num_sessions_parked=3,
        host_kv_bytes=10,
        disk_kv_bytes=20,
        host_offloaded_blocks_total=4,
        host_offloaded_bytes_total=40,
        disk_restored_blocks_total=5,
        disk_restored_bytes_total=50,
        lost_kv_blocks_total=6,
    )
    metrics(EngineStepped(model="m", stats=stats))
    for state, count in (("active", 1), ("idle", 2), ("parked", 3)):
        assert sample(metrics, f'headway_sessions{{model="m",state="{state}"}}') == count
    for tier, size in (("host", 10), ("disk", 20)):
        assert sample(metrics, f'headway_kv_tier_bytes{{model="m",tier="{tier}"}}') == size
    metrics(EngineStateChanged(model="m", state="restarting"))
    assert sample(metrics, 'headway_sessions{model="m",state="idle"}') == 0
    metrics(EngineStepped(model="m", stats=stats))
    assert sample(metrics, 'headway_kv_offloaded_blocks_total{model="m",tier="host"}') == 8
    assert sample(metrics, 'headway_kv_offloaded_bytes_total{model="m",tier="host"}') == 80
    assert sample(metrics, 'headway_kv_restored_blocks_total{model="m",tier="disk"}') == 10
    assert sample(metrics, 'headway_kv_restored_bytes_total{model="m",tier="disk"}') == 100
    assert sample(metrics, 'headway_kv_restored_blocks_total{model="m",tier="host"}') == 0
    assert sample(metrics, 'headway_kv_lost_blocks_total{model="m"}') == 12
