"""Prometheus metrics from core's events: a hook that counts, a collector that prints. It knows neither HTTP nor engine.

All intervals are seconds. A request's class is a label, of three values; its tenant never is: there may be any number.
Everything belongs to one event loop: events come and scrapes happen on it. Bucket bounds
follow OpenTelemetry's conventions for generative AI (semantic-conventions-genai 0.1, `gen_ai.server.*`), with finer bounds
below for small models on a near machine and coarser ones above for long prompts on a slow one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headway.core.events import (
    EngineStateChanged,
    EngineStepped,
    Event,
    FirstToken,
    RequestEnded,
    TokensArrived,
)
from headway.core.messages import EngineStats
from headway.core.request import ServiceClass
from headway.core.version import __version__
from headway.obs import kv_metrics
from headway.obs.histogram import Histogram

TTFT_BOUNDS_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
    *(20, 40, 80),
)
TPOT_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5),
)
DURATION_BOUNDS_S: Final = tuple(0.01 * 2**power for power in range(14))
"""0.01 to 81.92 s: `gen_ai.server.request.duration`."""

_CLASSES: Final[tuple[ServiceClass, ...]] = get_args(ServiceClass)
_TTFT_HELP: Final = "From a request's arrival to its first token, by class."

_HISTOGRAMS: Final = {
    "time_per_output_token": (TPOT_BOUNDS_S, "(Last token - first token) / (tokens - 1), per request."),
    "inter_token_latency": (TPOT_BOUNDS_S, "Between consecutive tokens of a choice."),
    "request_queue_time": (TTFT_BOUNDS_S, "From entering the engine's queue to the first step."),
    "request_duration": (DURATION_BOUNDS_S, "From a request's arrival to its end."),
    "engine_step_duration": (TPOT_BOUNDS_S, "One step of the engine, from plan to tokens."),
}
"""Name without `headway_` and `_seconds` → bounds, help."""

_GAUGES: Final = {
    "requests_running": "Choices in the engine's batch (a request has `n`).",
    "requests_waiting": "Choices that wait for the engine.",
    "tokens_waiting": "Prompt tokens of the choices that have never run.",
    "kv_cache_usage_ratio": "Share of the KV cache's blocks that running requests hold (0 to 1).",
    "kv_cache_blocks": "Blocks of the KV cache.",
    "prefix_cached_blocks": "Blocks that hold a prefix somebody may use again.",
    "engine_ready": "1 while the engine takes requests.",
    "step_prediction_error_ratio": "Mean of the last steps' |measured - predicted| / measured.",
}
_ENGINE_COUNTERS: Final = {
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

    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
    )
    ttfts: dict[ServiceClass, Histogram] = field(
        default_factory=lambda: {name: Histogram(TTFT_BOUNDS_S) for name in _CLASSES}
    )
    outcomes: Counter[tuple[ServiceClass, str, str]] = field(default_factory=Counter)
    """(class, outcome, error code or "") → requests."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stats: EngineStats = field(default_factory=EngineStats)
    bases: Counter[str] = field(default_factory=Counter)
    """What earlier engine processes counted: their totals end with them, a Prometheus counter must not fall."""
    is_ready: bool = False
    num_restarts: int = 0


class Metrics(Collector):
    """Call it with every event; `page` gives what `/metrics` answers. Series of a model appear with its first event."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        model = self._models.get(event.model)
        if model is None:
            model = self._models[event.model] = _Model()
        match event:
            case TokensArrived():
                latency = model.histograms["inter_token_latency"]
                latency.observe_ns(event.interval_ns)
                if event.num_tokens > 1:  # tokens of one step arrive together
                    latency.observe_ns(0, event.num_tokens - 1)
            case EngineStepped():
                self._on_step(model, event.stats)
            case FirstToken():
                model.ttfts[event.service_class].observe_ns(event.ttft_ns)
            case RequestEnded():
                _on_end(model, event)
            case EngineStateChanged():
                model.is_ready = event.state == "ready"
                if model.is_ready:  # it reports of itself after its first step
                    model.stats = EngineStats(num_blocks=event.num_blocks, num_free_blocks=event.num_blocks)
                if event.state == "restarting":  # that engine is gone: its counts stay, what it held does not
                    model.num_restarts += 1
                    model.bases.update(_totals(model.stats))
                    model.stats = EngineStats()

    def page(self) -> tuple[str, bytes]:
        """Return the content type and the text of all metrics."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; called by prometheus-client."""
        yield from self._collect_histograms()
        yield from self._collect_engine()
        requests = CounterMetricFamily(
            "headway_requests",
            "Requests by class and how they ended.",
            labels=("model", "class", "outcome", "error"),
        )
        prompt = CounterMetricFamily("headway_prompt_tokens", "Tokens of prompts.", labels=("model",))
        completion = CounterMetricFamily("headway_completion_tokens", "Tokens of answers.", labels=("model",))
        restarts = CounterMetricFamily(
            "headway_engine_restarts", "Times the engine ended unasked.", labels=("model",)
        )
        for name, model in self._models.items():
            for labels, count in sorted(model.outcomes.items()):
                requests.add_metric((name, *labels), count)
            prompt.add_metric((name,), model.prompt_tokens)
            completion.add_metric((name,), model.completion_tokens)
            restarts.add_metric((name,), model.num_restarts)
        yield from (requests, prompt, completion, restarts)
        info = GaugeMetricFamily("headway_build_info", "Always 1.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info

    def _collect_histograms(self) -> Iterator[Metric]:
        ttft = HistogramMetricFamily(
            "headway_time_to_first_token_seconds", _TTFT_HELP, labels=("model", "class")
        )
        for name, model in self._models.items():
            for service_class, histogram in model.ttfts.items():
                ttft.add_metric((name, service_class), histogram.cumulative(), histogram.sum_s)
        yield ttft
        for kind, (_, help_) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"headway_{kind}_seconds", help_, labels=("model",))
            for name, model in self._models.items():
                histogram = model.histograms[kind]
                family.add_metric((name,), histogram.cumulative(), histogram.sum_s)
            yield family

    def _collect_engine(self) -> Iterator[Metric]:
        for kind, help_ in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headway_{kind}", help_, labels=("model",))
            for name, model in self._models.items():
                gauge.add_metric((name,), _gauges(model)[kind])
            yield gauge
        for kind, help_ in _ENGINE_COUNTERS.items():
            counter = CounterMetricFamily(f"headway_{kind}", help_, labels=("model",))
            for name, model in self._models.items():
                counter.add_metric((name,), model.bases[kind] + _totals(model.stats)[kind])
            yield counter
        yield from kv_metrics.collect(
            [kv_metrics.ModelStats(name, model.stats, model.bases) for name, model in self._models.items()]
        )

    @staticmethod
    def _on_step(model: _Model, stats: EngineStats) -> None:
        model.stats = stats
        model.histograms["engine_step_duration"].observe_ns(stats.step_ns)


def _on_end(model: _Model, event: RequestEnded) -> None:
    model.outcomes[event.service_class, event.outcome, event.error_code or ""] += 1
    histograms = model.histograms
    if event.usage is not None:
        model.prompt_tokens += event.usage.prompt_tokens
        model.completion_tokens += event.usage.completion_tokens
    if event.queue_ns is not None:
        histograms["request_queue_time"].observe_ns(event.queue_ns)
    if event.tpot_ns is not None:
        histograms["time_per_output_token"].observe_ns(event.tpot_ns)
    if event.outcome in ("stop", "length"):  # others end whenever their caller, or a fault, decides
        histograms["request_duration"].observe_ns(event.e2e_ns)


def _gauges(model: _Model) -> dict[str, float]:
    stats = model.stats
    used = stats.num_blocks - stats.num_free_blocks
    return {
        "requests_running": stats.num_running,
        "requests_waiting": stats.num_waiting,
        "tokens_waiting": stats.num_waiting_tokens,
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
