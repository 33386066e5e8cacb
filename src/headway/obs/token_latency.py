"""Latency by API token, with the threshold of its kind beside it, in a bounded number of series.

A call is slow when its first token came later than its token's kind has for a threshold; of what has no tokens (a list of
models, an embedding) its end counts, so that how much somebody asks for makes no alarm. Refusals and mistakes are not timed
against a threshold: they are quick, and would hide the slow ones among them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.caller import Kind
from headway.core.clock import NS_PER_MS
from headway.core.events import CallEnded, FirstToken
from headway.obs.config import TokenConfig
from headway.obs.histogram import Histogram, label, text
from headway.obs.token_names import ANONYMOUS, INVALID, OTHER, TokenNames

BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 1, 10)
"""With infinity 8 buckets, as there are many tokens; the default thresholds are among them."""
UNKNOWN_ENDPOINT: Final = "_unknown"
MAX_LATENCY_SERIES: Final = 1000
"""Histograms of `api_token_latency_seconds` of named tokens, together: 10,000 lines, 9 ms of the loop at each scrape."""

_CLIENT_CLOSED: Final = 499


@dataclass
class _Token:
    """What is counted under a name. `owner`: kind and tenant, None for names that stand for many."""

    owner: tuple[Kind, str] | None = None
    latencies: dict[tuple[str, int], tuple[str, Histogram]] = field(default_factory=dict)
    """(endpoint, status) → labels; from arrival to the end."""
    ttfts: Histogram = field(default_factory=lambda: Histogram(BOUNDS_S))
    timed: dict[Kind, list[int]] = field(default_factory=dict)
    """Kind → [calls, slow ones among them]."""


class TokenLatency:
    """Counts calls by token. Series of a token appear with its first call, and go when its name is given up."""

    def __init__(self, config: TokenConfig) -> None:
        self._alarm_ns = {kind: round(alarm_ms * NS_PER_MS) for kind, alarm_ms in config.alarm_ms.items()}
        self._tokens: dict[str, _Token] = {}
        self._names = TokenNames(config.watched, config.num_top, self._drop)
        self._num_series = 0

    def on_first_token(self, event: FirstToken) -> None:
        """Count a time to first token."""
        token = self._token(self._names.name(event.token_id), event.kind, event.tenant)
        token.ttfts.observe_ns(event.ttft_ns)
        self._time(token, event.kind, event.ttft_ns)

    def on_call(self, event: CallEnded) -> None:
        """Count a call."""
        name = self._names.name(event.token_id)
        token = self._token(name, event.kind, event.tenant)
        series = token.latencies.get((event.endpoint, event.status))
        if series is None:
            series = self._new_series(name, token, event)
        series[1].observe_ns(event.duration_ns)
        had_tokens = event.request is not None and event.request.ttft_ns is not None
        if name != INVALID and not had_tokens and (event.status < 400 or event.status == _CLIENT_CLOSED):
            self._time(token, event.kind, event.duration_ns)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics but for those of `text`."""
        counts = CounterMetricFamily(
            "headway_token_timed_calls",
            "Calls that were timed against their token's threshold.",
            labels=("token_id", "kind"),
        )
        slow = CounterMetricFamily(
            "headway_token_slow_calls",
            "Of those, the calls that took longer than it.",
            labels=("token_id", "kind"),
        )
        info = GaugeMetricFamily(
            "headway_token_info", "Always 1: tokens that are named.", labels=("token_id", "kind", "tenant")
        )
        for name, token in self._tokens.items():
            for kind, (num_timed, num_slow) in token.timed.items():
                counts.add_metric((name, kind), num_timed)
                slow.add_metric((name, kind), num_slow)
            if token.owner is not None:
                info.add_metric((name, *token.owner), 1)
        thresholds = GaugeMetricFamily(
            "headway_token_latency_threshold_seconds",
            "From when on a call is slow, by its token's kind.",
            labels=("kind",),
        )
        for kind, alarm_ns in self._alarm_ns.items():
            thresholds.add_metric((kind,), alarm_ns / 1e9)
        yield from (counts, slow, info, thresholds)

    def text(self) -> str:
        """Return the histograms, in Prometheus's text format: they make up most of a page."""
        latencies = text(
            "api_token_latency_seconds",
            "From a call's arrival to its end, by token, route and status.",
            (series for token in self._tokens.values() for series in token.latencies.values()),
        )
        ttfts = text(
            "headway_token_ttft_seconds",
            "From a call's arrival to its first token, by token.",
            ((label("token_id", name), token.ttfts) for name, token in self._tokens.items()),
        )
        return latencies + ttfts

    def _token(self, name: str, kind: Kind, tenant: str) -> _Token:
        token = self._tokens.get(name)
        if token is None:
            token = self._tokens[name] = _Token()
        if name not in (OTHER, INVALID, ANONYMOUS):
            token.owner = kind, tenant
        return token

    def _new_series(self, name: str, token: _Token, call: CallEnded) -> tuple[str, Histogram]:
        if token.owner is not None:
            if self._num_series < MAX_LATENCY_SERIES:
                self._num_series += 1
            else:
                name, token = OTHER, self._tokens.setdefault(OTHER, _Token())
        labels = (
            label("token_id", name),
            label("endpoint", call.endpoint or UNKNOWN_ENDPOINT),
            label("status_code", str(call.status)),
        )
        return token.latencies.setdefault(
            (call.endpoint, call.status), (",".join(labels), Histogram(BOUNDS_S))
        )

    def _time(self, token: _Token, kind: Kind, took_ns: int) -> None:
        timed = token.timed.setdefault(kind, [0, 0])
        timed[0] += 1
        timed[1] += took_ns > self._alarm_ns[kind]

    def _drop(self, name: str) -> None:
        token = self._tokens.pop(name, None)
        if token is not None:
            self._num_series -= len(token.latencies)
