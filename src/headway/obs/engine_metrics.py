"""Metrics of engines, from what they report of themselves after each step. By model; `metrics` prints them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.events import EngineStateChanged, EngineStepped
from headway.core.messages import EngineStats
from headway.obs import kv_metrics
from headway.obs.histogram import Histogram, family
from headway.obs.request_metrics import TPOT_BOUNDS_S

_GAUGES: Final = {
    "requests_running": "Choices in the engine's batch (a request has `n`).",
    "requests_waiting": "Choices that wait for the engine.",
    "tokens_waiting": "Prompt tokens of the choices that have never run.",
    "engine_concurrency_limit": "Requests that a remote engine is sent at once (0: the engine decides itself).",
    "kv_cache_usage_ratio": "Share of the KV cache's blocks that running requests hold (0 to 1).",
    "kv_cache_blocks": "Blocks of the KV cache.",
    "prefix_cached_blocks": "Blocks that hold a prefix somebody may use again.",
    "engine_ready": "1 while the engine takes requests.",
    "step_prediction_error_ratio": "Mean of the last steps' |measured - predicted| / measured.",
}
_COUNTERS: Final = {
    "engine_steps": "Steps of the engine.",
    "prefill_tokens": "Tokens computed in prompts, and again after a preemption (not those from the prefix cache).",
    "decode_tokens": "Tokens of answers computed while they were written: all of an answer but its first.",
    "drafted_tokens": "Tokens that steps carried as guesses of what comes next.",
    "accepted_tokens": "Of those, the tokens that were right.",
    "prefix_cache_query_tokens": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hit_tokens": "Prompt tokens found in the prefix cache.",
    "preemptions": "Sequences set back because the KV cache was full, or for a better class.",
}


@dataclass
class _Model:
    """What is counted per model."""

    step_times: Histogram = field(default_factory=lambda: Histogram(TPOT_BOUNDS_S))
    stats: EngineStats = field(default_factory=EngineStats)
    bases: Counter[str] = field(default_factory=Counter)
    """What earlier engine processes counted: their totals end with them, a Prometheus counter must not fall."""
    is_ready: bool = False
    num_restarts: int = 0


class EngineMetrics:
    """Series of a model appear with its engine's first event."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def on_step(self, event: EngineStepped) -> None:
        """Take an engine's report."""
        model = self._model(event.model)
        model.stats = event.stats
        if event.stats.steps_total:  # a remote engine's steps are its own affair
            model.step_times.observe_ns(event.stats.step_ns)

    def on_state(self, event: EngineStateChanged) -> None:
        """Take an engine's new state."""
        model = self._model(event.model)
        model.is_ready = event.state == "ready"
        if model.is_ready:  # it reports of itself after its first step
            model.stats = EngineStats(num_blocks=event.num_blocks, num_free_blocks=event.num_blocks)
        if event.state == "restarting":  # that engine is gone: its counts stay, what it held does not
            model.num_restarts += 1
            model.bases.update(_totals(model.stats))
            model.stats = EngineStats()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all engines."""
        models = self._models.items()
        yield family(
            "headway_engine_step_duration_seconds",
            "One step of the engine, from plan to tokens.",
            ("model",),
            (((name,), model.step_times) for name, model in models),
        )
        for kind, help_ in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headway_{kind}", help_, labels=("model",))
            for name, model in models:
                gauge.add_metric((name,), _gauges(model)[kind])
            yield gauge
        for kind, help_ in _COUNTERS.items():
            counter = CounterMetricFamily(f"headway_{kind}", help_, labels=("model",))
            for name, model in models:
                counter.add_metric((name,), model.bases[kind] + _totals(model.stats)[kind])
            yield counter
        yield from kv_metrics.collect(
            [kv_metrics.ModelStats(name, model.stats, model.bases) for name, model in models]
        )
        restarts = CounterMetricFamily(
            "headway_engine_restarts", "Times the engine ended unasked.", labels=("model",)
        )
        for name, model in models:
            restarts.add_metric((name,), model.num_restarts)
        yield restarts

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model()
        return model


def _gauges(model: _Model) -> dict[str, float]:
    stats = model.stats
    used = stats.num_blocks - stats.num_free_blocks
    return {
        "requests_running": stats.num_running,
        "requests_waiting": stats.num_waiting,
        "tokens_waiting": stats.num_waiting_tokens,
        "engine_concurrency_limit": stats.concurrency_limit,
        "kv_cache_usage_ratio": used / stats.num_blocks if stats.num_blocks else 0.0,
        "kv_cache_blocks": stats.num_blocks,
        "prefix_cached_blocks": stats.num_cached_blocks,
        "engine_ready": float(model.is_ready),
        "step_prediction_error_ratio": stats.step_prediction_error,
    }


def _totals(stats: EngineStats) -> dict[str, int]:
    return {
        "engine_steps": stats.steps_total,
        "prefill_tokens": stats.prefill_tokens_total,
        "decode_tokens": stats.decode_tokens_total,
        "drafted_tokens": stats.drafted_tokens_total,
        "accepted_tokens": stats.accepted_tokens_total,
        "prefix_cache_query_tokens": stats.prefix_query_tokens_total,
        "prefix_cache_hit_tokens": stats.prefix_hit_tokens_total,
        "preemptions": stats.preemptions_total,
        **kv_metrics.totals(stats),
    }
