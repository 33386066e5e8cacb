"""Prometheus metrics from core's events: a hook that counts, a collector that prints. It knows neither HTTP nor engine.

All intervals are seconds. Everything belongs to one event loop: events come and scrapes happen on it. What is counted, and
how it is printed, is in a file for each group.
"""

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.core.events import (
    CallEnded,
    CallRefused,
    EngineStateChanged,
    EngineStepped,
    Event,
    FirstToken,
    FlowDegraded,
    RequestEnded,
    RiskAssessed,
    StreamAbandoned,
    StreamResent,
    StreamResumed,
    TokensArrived,
    TokensSettled,
)
from headway.core.version import __version__
from headway.obs.config import TokenConfig
from headway.obs.engine_metrics import EngineMetrics
from headway.obs.flow_metrics import FlowMetrics
from headway.obs.request_metrics import RequestMetrics
from headway.obs.stream_metrics import StreamMetrics
from headway.obs.token_latency import TokenLatency


class Metrics(Collector):
    """Call it with every event; `page` gives what `/metrics` answers. Series of a model appear with its first event."""

    def __init__(self, tokens: TokenConfig | None = None) -> None:
        self._requests = RequestMetrics()
        self._engines = EngineMetrics()
        self._tokens = TokenLatency(tokens or TokenConfig())
        self._flow = FlowMetrics()
        self._streams = StreamMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case TokensArrived():  # the most frequent first
                self._requests.on_tokens(event)
            case EngineStepped():
                self._engines.on_step(event)
            case FirstToken():
                self._requests.on_first_token(event)
                self._tokens.on_first_token(event)
            case RequestEnded():
                self._requests.on_end(event)
            case CallEnded():
                self._tokens.on_call(event)
            case CallRefused():
                self._flow.on_refused(event)
            case TokensSettled():
                self._flow.on_settled(event)
            case RiskAssessed():
                self._flow.on_risk(event)
            case FlowDegraded():
                self._flow.on_degraded(event)
            case StreamResumed():
                self._streams.on_resumed(event)
            case StreamResent():
                self._streams.on_resent(event)
            case StreamAbandoned():
                self._streams.on_abandoned(event)
            case EngineStateChanged():
                self._requests.add_model(event.model)
                self._engines.on_state(event)

    def page(self) -> tuple[str, bytes]:
        """Return the content type and the text of all metrics."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry) + self._tokens.text().encode()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric but those that tokens write themselves; called by prometheus-client."""
        for group in (self._requests, self._engines, self._tokens, self._flow, self._streams):
            yield from group.collect()
        info = GaugeMetricFamily("headway_build_info", "Always 1.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info
