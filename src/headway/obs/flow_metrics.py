"""Metrics of what callers may: who was turned away and why, tokens settled and refunded, limits that stand in, risk.

`metrics` prints them. Labels are codes, statuses and classes; no caller is named here.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.events import CallRefused, FlowDegraded, RiskAssessed, TokensSettled
from headway.core.request import ServiceClass
from headway.obs.histogram import NS_PER_S, Histogram, family

RISK_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 1.5, 2)
"""Risk lies within 0 and 2; a caller at 1 has 70 % of its rate."""


class FlowMetrics:
    """What was decided about calls."""

    def __init__(self) -> None:
        self._refused: Counter[tuple[ServiceClass, str, str]] = Counter()
        """(class, code, status) → calls."""
        self._settled: Counter[ServiceClass] = Counter()
        self._refunded: Counter[ServiceClass] = Counter()
        self._risk = Histogram(RISK_BOUNDS)
        self._degraded = False
        self._num_degradations = 0

    def on_refused(self, event: CallRefused) -> None:
        """Count a call that was turned away."""
        self._refused[event.service_class, event.reason, str(event.status)] += 1

    def on_settled(self, event: TokensSettled) -> None:
        """Count what a call used of what it had reserved."""
        self._settled[event.service_class] += event.used
        self._refunded[event.service_class] += max(0, event.reserved - event.used)

    def on_degraded(self, event: FlowDegraded) -> None:
        """Take whether local limits stand in."""
        self._num_degradations += event.degraded and not self._degraded
        self._degraded = event.degraded

    def on_risk(self, event: RiskAssessed) -> None:
        """Count a caller's risk."""
        self._risk.observe_ns(round(event.risk * NS_PER_S))  # a number without unit, as if it were seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        refused = CounterMetricFamily(
            "headway_refused_calls",
            "Calls that were turned away, by the error's code and status.",
            labels=("class", "reason", "status"),
        )
        for labels, count in sorted(self._refused.items()):
            refused.add_metric(labels, count)
        yield refused
        for name, help_, counted in (
            ("settled", "Tokens that calls used of those they had reserved.", self._settled),
            ("refunded", "Tokens that calls reserved and did not use.", self._refunded),
        ):
            tokens = CounterMetricFamily(f"headway_{name}_tokens", help_, labels=("class",))
            for service_class, count in sorted(counted.items()):
                tokens.add_metric((service_class,), count)
            yield tokens
        yield family("headway_caller_risk", "Risk of callers, call by call (0 to 2).", (), [((), self._risk)])
        yield GaugeMetricFamily(
            "headway_flow_degraded",
            "1 while local limits stand in for shared ones.",
            value=float(self._degraded),
        )
        yield CounterMetricFamily(
            "headway_flow_degradations", "Times shared limits were lost.", value=self._num_degradations
        )
