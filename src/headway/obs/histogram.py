"""A histogram that costs one bisection per observation, for what happens with every token.

prometheus-client's own takes a lock per bucket and observation; here one event loop observes and reads, so none is needed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

NS_PER_S = 1e9


class Histogram:
    """Counts durations in buckets with inclusive upper bounds, as Prometheus does. Not thread-safe."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_ns = [bound * NS_PER_S for bound in bounds_s]
        self._labels = [*(format(bound, "g") for bound in bounds_s), "+Inf"]
        self._counts = [0] * len(self._labels)
        self._sum_ns = 0

    def observe_ns(self, duration_ns: int, count: int = 1) -> None:
        """Add `count` observations of `duration_ns` nanoseconds."""
        self._counts[bisect_left(self._bounds_ns, duration_ns)] += count
        self._sum_ns += duration_ns * count

    def lines(self, name: str, labels: str) -> str:
        """Return its samples in Prometheus's text format. `labels`: such as `a="b",c="d"`, escaped; not none."""
        counts = [*accumulate(self._counts)]
        buckets = [
            f'{name}_bucket{{{labels},le="{bound}"}} {count}\n'
            for bound, count in zip(self._labels, counts, strict=True)
        ]
        return (
            f"{''.join(buckets)}{name}_count{{{labels}}} {counts[-1]}\n{name}_sum{{{labels}}} {self.sum_s}\n"
        )

    @property
    def sum_s(self) -> float:
        """The sum of all observations, in seconds."""
        return self._sum_ns / NS_PER_S

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it) per bucket."""
        return list(zip(self._labels, map(float, accumulate(self._counts)), strict=True))


def text(name: str, help_: str, series: Iterable[tuple[str, Histogram]]) -> str:
    """Return the metric `name` in Prometheus's text format, with a series for each (labels, histogram).

    What a page has hundreds of is written here: prometheus-client takes 7 us for a line, 9 times as long, on the loop that
    serves.
    """
    samples = "".join(histogram.lines(name, labels) for labels, histogram in series)
    return f"# HELP {name} {help_}\n# TYPE {name} histogram\n{samples}"


def label(name: str, value: str) -> str:
    """Return `name="value"`, escaped for the text format."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'{name}="{escaped}"'


def family(
    name: str, help_: str, labels: Sequence[str], histograms: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    """Return the metric `name` with a series for each of `histograms`, by its labels' values."""
    found = HistogramMetricFamily(name, help_, labels=labels)
    for values, histogram in histograms:
        found.add_metric(values, histogram.cumulative(), histogram.sum_s)
    return found
