"""How a server's Prometheus counters and histograms grew between two looks at its `/metrics`. It knows no server's names.

A histogram knows of its values only the buckets that they fell into, so its percentiles are pairs of bounds between which
they lie, and never one number.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import LEAST_SAMPLES, PERCENTILES

_MS_PER_S = NS_PER_S // NS_PER_MS
_STARTED = "process_start_time_seconds"
"""As Prometheus' client libraries name it; it changes with a restart even where no counter has fallen."""

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MetricPage:
    """The series of counters and histograms, by their samples' name, as in `x_total` and `x_bucket`, and their labels."""

    series: Mapping[str, Mapping[Labels, float]]
    started_s: float | None
    """When the server's process started, if it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketed:
    """What a histogram says, in ms. A percentile is (over, up to), infinite in the last bucket; None: too few values."""

    n: int
    mean: float | None
    percentiles: Mapping[str, tuple[float, float] | None]
    """By the names of `distribution.PERCENTILES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much was added to each series. `restarted`: a counter fell, so that what was counted before is lost."""

    series: Mapping[str, Mapping[Labels, float]]
    restarted: bool

    def total(self, name: str, is_wanted: Callable[[Labels], bool] = lambda _: True) -> int | None:
        """Return the growth of a counter over its wanted series; None if there is no such counter."""
        if name not in self.series:
            return None
        return round(sum(grown for labels, grown in self.series[name].items() if is_wanted(labels)))

    def histogram(self, name: str, is_wanted: Callable[[Labels], bool] = lambda _: True) -> Bucketed | None:
        """Return what a histogram of seconds gained over its wanted series; None if there is no such histogram."""
        buckets: dict[float, float] = defaultdict(float)
        for labels, grown in self.series.get(f"{name}_bucket", {}).items():
            bound = _upper_bound(labels)
            if bound is not None and is_wanted(labels):
                buckets[bound] += grown
        if not buckets:
            return None
        sums = self.series.get(f"{name}_sum", {})
        sum_s = sum(grown for labels, grown in sums.items() if is_wanted(labels))
        bounds = sorted(buckets)
        n = round(buckets[bounds[-1]])
        return Bucketed(
            n=n,
            mean=sum_s * _MS_PER_S / n if n else None,
            percentiles=MappingProxyType(
                {
                    figure: _bounds(bounds, buckets, n, share) if n >= LEAST_SAMPLES.get(figure, 1) else None
                    for figure, share in PERCENTILES.items()
                }
            ),
        )


def parse_page(text: str) -> MetricPage | None:
    """Read Prometheus' text format; None for anything else."""
    series: dict[str, dict[Labels, float]] = defaultdict(dict)
    started_s = None
    try:
        for family in text_string_to_metric_families(text):
            if family.type == "counter":
                series.setdefault(
                    f"{family.name}_total", {}
                )  # announced, though nothing may have been counted yet
            for sample in family.samples:
                if sample.name == _STARTED:
                    started_s = sample.value
                elif family.type in ("counter", "histogram") and math.isfinite(sample.value):
                    series[sample.name][frozenset(sample.labels.items())] = sample.value
    except (ValueError, KeyError, IndexError):  # what its parser makes of other text
        return None
    return MetricPage(dict(series), started_s)


def growth(before: MetricPage, after: MetricPage, names: Collection[str]) -> Growth:
    """Return how the families of `names`, as in `x` of `x_total`, grew; after a restart, what was counted since."""
    of_names = {f"{name}{suffix}" for name in names for suffix in ("", "_total", "_bucket", "_sum", "_count")}
    kept = {name: found for name, found in after.series.items() if name in of_names}
    restarted = before.started_s != after.started_s or any(
        kept.get(name, {}).get(labels, -math.inf) < value
        for name, found in before.series.items()
        if name in of_names
        for labels, value in found.items()
    )
    return Growth(
        series={
            name: {
                labels: value if restarted else value - before.series.get(name, {}).get(labels, 0.0)
                for labels, value in found.items()
            }
            for name, found in kept.items()
        },
        restarted=restarted,
    )


def _upper_bound(labels: Labels) -> float | None:
    try:
        bound = float(dict(labels)["le"])
    except (KeyError, ValueError):
        return None
    return None if math.isnan(bound) else bound


def _bounds(
    bounds: list[float], up_to: Mapping[float, float], n: int, share: float
) -> tuple[float, float] | None:
    """Return the bounds of the first bucket with a value that a share of at least `share` does not exceed."""
    rank = math.ceil(round(n * share, 9))
    lower = 0.0
    for bound in bounds:
        if up_to[bound] >= rank:
            return lower * _MS_PER_S, bound * _MS_PER_S
        lower = bound
    return None
