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
LEAST_CLUSTERS = 6
"""With fewer there is no interval, as there is none of a median of fewer than six independent samples."""
MOST_CLUSTERS = 1_000
"""Of more, several are drawn together: they are as independent as each alone, and the work is bounded."""

_DRAWN_AT_ONCE = 1_000_000
"""Counts of clusters that are in memory at a time."""
_MOST_BLOCKS = 256
"""Of samples: more make the product larger with which a block is found, fewer the search within it."""

PERCENTILES: Mapping[str, float] = MappingProxyType(
    {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
)
LEAST_SAMPLES: Mapping[str, int] = MappingProxyType({"p99": 100, "p99.9": 1_000})
"""With fewer samples a percentile is not told: it would be the largest value under another name."""

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def describe(samples: Sequence[float] | Floats, clusters: Sequence[int] | Ints | None = None) -> Distribution:
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
    if clusters is None or len(np.unique(clusters)) == len(values):
        of_mean = mean_interval(finite)
        if of_mean is not None and finite.min() >= 0:
            # Durations, whose mean Student's interval may put below 0.
            of_mean = max(0.0, of_mean[0]), of_mean[1]
        intervals: dict[str, Interval | None] = {
            name: order_interval(ordered, share) for name, share in figures.items()
        }
    else:
        # A percentile that so many independent samples would have no interval of has none of clusters, which know less.
        told = {name: share for name, share in figures.items() if order_interval(ordered, share) is not None}
        of_mean, intervals = _cluster_intervals(ordered, np.asarray(clusters)[order], told)
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
    ordered: Floats, clusters: Ints, shares: Mapping[str, float]
) -> tuple[Interval | None, dict[str, Interval | None]]:
    """Percentile bootstrap over whole clusters (Davison and Hinkley, Bootstrap Methods and their Application, section 3.8).

    `clusters` names each of the `ordered` samples' clusters. Seeded: the same samples have the same intervals.
    """
    names, cluster = np.unique(clusters, return_inverse=True)
    if len(names) < LEAST_CLUSTERS:
        return None, dict.fromkeys(shares)
    cluster %= MOST_CLUSTERS
    num_clusters = min(len(names), MOST_CLUSTERS)
    finite = np.isfinite(ordered)
    num_finite = np.bincount(cluster, finite, num_clusters)
    sums = np.bincount(cluster, np.where(finite, ordered, 0.0), num_clusters)
    blocks = _Blocks(cluster, num_clusters)
    rng = np.random.default_rng(0)
    at_once = max(1, _DRAWN_AT_ONCE // num_clusters)
    means: list[Floats] = []
    found: dict[str, list[Floats]] = {name: [] for name in shares}
    for first in range(0, RESAMPLES, at_once):
        num_drawn = min(at_once, RESAMPLES - first)
        picked = rng.integers(num_clusters, size=(num_drawn, num_clusters))
        picked += num_clusters * np.arange(num_drawn)[:, None]
        times = np.bincount(picked.ravel(), minlength=picked.size).reshape(picked.shape).astype(np.float64)
        drawn_finite = times @ num_finite
        some = drawn_finite > 0
        means.append((times @ sums)[some] / drawn_finite[some])
        up_to = np.cumsum(times @ blocks.counts, axis=1)
        for name, share in shares.items():
            ranks = np.maximum(1, np.ceil(np.round(up_to[:, -1] * share, 9)))
            found[name].append(ordered[blocks.positions(times, up_to, ranks)])
    drawn_means = np.concatenate(means)
    intervals: dict[str, Interval | None] = {name: ends(np.concatenate(each)) for name, each in found.items()}
    return ends(drawn_means) if len(drawn_means) else None, intervals


class _Blocks:
    """Samples in rising order, cut into blocks, so that a resample's percentile is looked for within one of them only.

    It finds the very sample that counting through all of them would, in a hundredth of the time with a million samples.
    """

    def __init__(self, cluster: Ints, num_clusters: int) -> None:
        self._cluster = cluster
        self._length = math.ceil(len(cluster) / _MOST_BLOCKS)
        block = np.arange(len(cluster)) // self._length
        num_blocks = int(block[-1]) + 1
        counted = np.bincount(cluster * num_blocks + block, minlength=num_clusters * num_blocks)
        self.counts = counted.reshape(num_clusters, num_blocks).astype(np.float64)
        """Samples of a cluster in a block."""

    def positions(self, times: Floats, up_to: Floats, ranks: Floats) -> Ints:
        """Return where in the order the sample of a rank (from 1) lies, for each row of how often clusters were drawn.

        `up_to`: how many samples that row has up to the end of each block.
        """
        blocks = (up_to < ranks[:, None]).sum(axis=1)
        before = np.where(blocks > 0, up_to[np.arange(len(times)), blocks - 1], 0.0)
        found = np.empty(len(times), dtype=np.int64)
        for block in np.unique(blocks):
            rows = np.flatnonzero(blocks == block)
            start = block * self._length
            members = self._cluster[start : start + self._length]
            within = np.cumsum(np.take(times[rows], members, axis=1), axis=1)
            found[rows] = start + (within < (ranks - before)[rows, None]).sum(axis=1)
        return found


def ends(drawn: Floats) -> Interval:
    """Return the interval that holds the middle 95 % of what was drawn, which is something."""
    ordered = np.sort(drawn)
    return percentile(ordered, (1 - CONFIDENCE) / 2), percentile(ordered, (1 + CONFIDENCE) / 2)
