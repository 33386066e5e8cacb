"""Metrics of requests: how long they take, how they end, how many tokens they have. By model; `metrics` prints them.

A request's class is a label, of three values; its tenant never is: there may be any number. Bucket bounds follow
OpenTelemetry's conventions for generative AI (semantic-conventions-genai 0.1, `gen_ai.server.*`), with finer bounds below
for small models on a near machine and coarser ones above for long prompts on a slow one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, Metric

from headway.core.events import FirstToken, RequestEnded, TokensArrived
from headway.core.request import ServiceClass
from headway.core.stages import STAGES, Stage
from headway.obs.histogram import Histogram, family

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
STAGE_BOUNDS_S: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 40),
)
"""From parsing, which takes parts of a millisecond, to decoding, which takes as long as there are tokens."""

_CLASSES: Final[tuple[ServiceClass, ...]] = get_args(ServiceClass)
_HISTOGRAMS: Final = {
    "time_per_output_token": (TPOT_BOUNDS_S, "(Last token - first token) / (tokens - 1), per request."),
    "inter_token_latency": (TPOT_BOUNDS_S, "Between consecutive tokens of a choice."),
    "request_queue_time": (TTFT_BOUNDS_S, "From entering the engine's queue to the first step."),
    "request_duration": (DURATION_BOUNDS_S, "From a request's arrival to its end."),
}
"""Name without `headway_` and `_seconds` → bounds, help."""


@dataclass
class _Model:
    """What is counted per model."""

    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
    )
    ttfts: dict[ServiceClass, Histogram] = field(
        default_factory=lambda: {name: Histogram(TTFT_BOUNDS_S) for name in _CLASSES}
    )
    stages: dict[Stage, Histogram] = field(
        default_factory=lambda: {name: Histogram(STAGE_BOUNDS_S) for name in STAGES}
    )
    outcomes: Counter[tuple[ServiceClass, str, str]] = field(default_factory=Counter)
    """(class, outcome, error code or "") → requests."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class RequestMetrics:
    """Series of a model appear with its first event, or when it is added."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def add_model(self, name: str) -> None:
        """Begin a model's series, at zero."""
        self._model(name)

    def on_tokens(self, event: TokensArrived) -> None:
        """Count what a later step brought."""
        latency = self._model(event.model).histograms["inter_token_latency"]
        latency.observe_ns(event.interval_ns)
        if event.num_tokens > 1:  # tokens of one step arrive together
            latency.observe_ns(0, event.num_tokens - 1)

    def on_first_token(self, event: FirstToken) -> None:
        """Count a time to first token."""
        self._model(event.model).ttfts[event.service_class].observe_ns(event.ttft_ns)

    def on_end(self, event: RequestEnded) -> None:
        """Count how a request ended."""
        model = self._model(event.model)
        model.outcomes[event.service_class, event.outcome, event.error_code or ""] += 1
        for stage, duration_ns in event.stages:
            model.stages[stage].observe_ns(duration_ns)
        if event.usage is not None:
            model.prompt_tokens += event.usage.prompt_tokens
            model.completion_tokens += event.usage.completion_tokens
        if event.queue_ns is not None:
            model.histograms["request_queue_time"].observe_ns(event.queue_ns)
        if event.tpot_ns is not None:
            model.histograms["time_per_output_token"].observe_ns(event.tpot_ns)
        if event.outcome in ("stop", "length"):  # others end whenever their caller, or a fault, decides
            model.histograms["request_duration"].observe_ns(event.e2e_ns)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all models."""
        models = self._models.items()
        yield family(
            "headway_time_to_first_token_seconds",
            "From a request's arrival to its first token, by class.",
            ("model", "class"),
            (((name, label), found) for name, model in models for label, found in model.ttfts.items()),
        )
        yield family(
            "headway_request_stage_seconds",
            "A request's time in each stage that it reached; the stages' sum is its whole time.",
            ("model", "stage"),
            (((name, stage), found) for name, model in models for stage, found in model.stages.items()),
        )
        for kind, (_, help_) in _HISTOGRAMS.items():
            yield family(
                f"headway_{kind}_seconds",
                help_,
                ("model",),
                (((name,), model.histograms[kind]) for name, model in models),
            )
        requests = CounterMetricFamily(
            "headway_requests",
            "Requests by class and how they ended.",
            labels=("model", "class", "outcome", "error"),
        )
        prompt = CounterMetricFamily("headway_prompt_tokens", "Tokens of prompts.", labels=("model",))
        completion = CounterMetricFamily("headway_completion_tokens", "Tokens of answers.", labels=("model",))
        for name, model in models:
            for labels, count in sorted(model.outcomes.items()):
                requests.add_metric((name, *labels), count)
            prompt.add_metric((name,), model.prompt_tokens)
            completion.add_metric((name,), model.completion_tokens)
        yield from (requests, prompt, completion)

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model()
        return model
