"""What a sample says: mean, deviation, percentiles, and how far each may be from the truth. Pure functions over numbers.

A percentile is the smallest sample that at least the wanted share of samples does not exceed: always a value that was
measured, and infinite as soon as too many are (requests that failed). Its interval consists of order statistics, without an
assumption about the distribution. Where samples come in clusters whose members resemble each other (turns of a conversation,
tokens of an answer) whole clusters are drawn again instead: the other interval would be too narrow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 2_000
"""Of a bootstrap: the ends of its intervals are known to a few per cent of their width, which is what an interval is for."""

PERCENTILES: Mapping[str, float] = MappingProxyType(
    {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
)
LEAST_SAMPLES: Mapping[str, int] = MappingProxyType({"p99": 100, "p99.9": 1_000})
"""With fewer samples a percentile is not told: it would be the largest value under another name."""

Interval = tuple[float, float]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The figures of one sample, in the sample's unit; None is what so few samples cannot tell."""

    n: int
    """Samples that are finite."""
    num_infinite: int
    """Samples that stand for what never came."""
    mean: float | None
    """Of the finite samples."""
    std: float | None
    """Their standard deviation, with n - 1."""
    percentiles: Mapping[str, float | None]
    """By the names of `PERCENTILES`, over all samples: infinite where too many are."""
    intervals: Mapping[str, Interval | None]
    """Of the mean and the percentiles, at a confidence of 95 %; None where no such interval exists."""


def describe(samples: Sequence[float] | Floats, clusters: Sequence[int] | None = None) -> Distribution:
    """Return what `samples` say. `clusters` names, for each sample, the cluster it belongs to; without, all are independent.

    Raises ValueError for a sample that is NaN or -inf, or when there are not as many clusters as samples.
    """
    values = np.asarray(samples, dtype=np.float64)
    if np.isnan(values).any() or (values == -np.inf).any():
        raise ValueError("a sample is NaN or -inf")
    if clusters is not None and len(clusters) != len(values):
        raise ValueError(f"{len(values)} samples, but {len(clusters)} clusters")
    finite = values[np.isfinite(values)]
    figures = {
        name: share for name, share in PERCENTILES.items() if len(values) >= LEAST_SAMPLES.get(name, 1)
    }
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    percentiles = {
        name: percentile(ordered, figures[name]) if name in figures else None for name in PERCENTILES
    }
    if clusters is None or len(set(clusters)) == len(values):
        of_mean = mean_interval(finite)
        if of_mean is not None and finite.min() >= 0:
            # Durations, whose mean Student's interval may put below 0.
            of_mean = max(0.0, of_mean[0]), of_mean[1]
        intervals: dict[str, Interval | None] = {
            name: order_interval(ordered, share) for name, share in figures.items()
        }
    else:
        of_mean, intervals = _cluster_intervals(ordered, np.asarray(clusters)[order], figures)
    return Distribution(
        n=len(finite),
        num_infinite=len(values) - len(finite),
        mean=float(finite.mean()) if len(finite) else None,
        std=float(finite.std(ddof=1)) if len(finite) > 1 else None,
        percentiles=MappingProxyType(percentiles),
        intervals=MappingProxyType({"mean": of_mean} | {name: intervals.get(name) for name in PERCENTILES}),
    )


def percentile(ordered: Floats, share: float) -> float:
    """Return the smallest of `ordered` (ascending, at least one) that a share of at least `share` does not exceed."""
    return float(ordered[_rank(len(ordered), share) - 1])


def order_interval(ordered: Floats, share: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Return order statistics between which the percentile of the population lies with at least `confidence`.

    The number of samples below it is binomial, whatever the distribution (Hahn and Meeker, Statistical Intervals, chapter
    5): both tails get half of what is left. None where the sample is too small for an upper or a lower end.
    """
    n = len(ordered)
    tail = (1 - confidence) / 2
    # The largest and the smallest rank (from 1) with P(fewer than `lower` below) <= tail and P(at least `upper`) <= tail.
    lower = int(stats.binom.ppf(tail, n, share))
    upper = int(stats.binom.ppf(1 - tail, n, share)) + 1
    if lower < 1 or upper > n:
        return None
    return float(ordered[lower - 1]), float(ordered[upper - 1])


def _rank(n: int, share: float) -> int:
    return max(1, math.ceil(round(n * share, 9)))  # 100 * 0.99 is a little more than 99


def mean_interval(finite: Floats) -> Interval | None:
    """Return Student's interval, which holds for means of many samples of any distribution with a variance; None of one."""
    if len(finite) < 2:
        return None
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(finite) - 1) * finite.std(ddof=1) / math.sqrt(len(finite))
    return float(finite.mean() - half), float(finite.mean() + half)


def _cluster_intervals(
    ordered: Floats, clusters: NDArray[np.int64], shares: Mapping[str, float]
) -> tuple[Interval | None, dict[str, Interval | None]]:
    """Percentile bootstrap over whole clusters (Davison and Hinkley, Bootstrap Methods and their Application, section 3.8).

    `clusters` names each of the `ordered` samples' clusters. Seeded: the same samples have the same intervals.
    """
    names, index = np.unique(clusters, return_inverse=True)
    if len(names) < 2:
        return None, dict.fromkeys(shares)
    is_finite = np.isfinite(ordered)
    finite = np.where(is_finite, ordered, 0.0)
    rng = np.random.default_rng(0)
    means: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in shares}
    for _ in range(RESAMPLES):
        drawn = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        times = drawn[index]  # each sample is in the resample
        up_to = np.cumsum(times)
        num_finite = int(times @ is_finite)
        if num_finite:
            means.append(float(times @ finite) / num_finite)
        for name, share in shares.items():
            position = np.searchsorted(up_to, _rank(int(up_to[-1]), share))
            found[name].append(float(ordered[position]))
    return _ends(means), {name: _ends(each) for name, each in found.items()}


def _ends(drawn: Sequence[float]) -> Interval | None:
    if not drawn:
        return None
    ordered = np.sort(np.asarray(drawn))
    return percentile(ordered, (1 - CONFIDENCE) / 2), percentile(ordered, (1 + CONFIDENCE) / 2)
