"""What a report's plots show, as numbers: shares, windows of time, requests in flight. Pure functions; nothing is drawn."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import percentile
from headway.lab.exchange import Exchange
from headway.lab.latency import due_ns, ttft_ns
from headway.lab.measurement import RunResult

NUM_BINS = 60
NUM_WINDOWS = 40
LEAST_PER_WINDOW = 5
"""Requests on average; with fewer a window's median is one request."""
LEAST_PER_LEVEL = 3
WIDE = 5
"""A largest value of so many medians leaves the rest of a linear axis a fifth of it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Shares of the samples between edges, of which there is one more; `logarithmic`: the edges have equal ratios."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    logarithmic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Requests due within a stretch of a run, of which all windows have the same `width_s`; None = nobody was answered."""

    start_s: float
    width_s: float
    num_ok: int
    num_failed: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None


def evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """Return `items`, or `most` (two or more) of them at even distances, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def histogram(samples: Sequence[float], times: Sequence[int] | None = None) -> Histogram:
    """Return the shares of `samples`, finite and at least one; `times`: how often each counts, once without.

    Bins are logarithmic where a linear axis would hold one pause and squash the rest.
    """
    values = np.asarray(samples, dtype=np.float64)
    weights = None if times is None else np.asarray(times, dtype=np.float64)
    total = len(values) if weights is None else int(weights.sum())
    low, high = float(values.min()), float(values.max())
    num_bins = min(NUM_BINS, max(8, round(total**0.5)))
    logarithmic = low > 0 and high > WIDE * float(np.median(values))
    if low == high:
        half = max(low * 0.05, 1e-3)
        edges = np.array([max(0.0, low - half), high + half])
    elif logarithmic:
        edges = np.geomspace(low, high, num_bins + 1)
    else:
        edges = np.linspace(low, high, num_bins + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # geomspace rounds
    counts, _ = np.histogram(values, bins=edges, weights=weights)
    return Histogram(
        edges=tuple(edges.tolist()), shares=tuple((counts / total).tolist()), logarithmic=logarithmic
    )


def reported(result: RunResult) -> Sequence[Exchange]:
    """Return the requests that a result's summary is of: of a ladder, those of the steps at the rate that it found."""
    if result.ladder is None:
        return result.exchanges
    return [exchange for step in result.ladder.reported for exchange in step.exchanges]


def counted(result: RunResult) -> Sequence[Exchange]:
    """Return those of them that its latencies are of: without warm-up."""
    return [exchange for exchange in reported(result) if result.summary.warm_up.keeps(exchange)]


def mostly_cached(exchange: Exchange) -> bool:
    """Whether the server had half of the prompt or more in its cache: a chat template's first tokens are always there."""
    usage = exchange.answer.usage
    if usage is None or not usage.cached_tokens or not usage.prompt_tokens:
        return False
    return 2 * usage.cached_tokens >= usage.prompt_tokens


def in_flight(exchanges: Sequence[Exchange]) -> list[int]:
    """Return, for each request, how many others were dispatched and not over when it was dispatched."""
    starts = sorted(exchange.stamps.dispatched_ns for exchange in exchanges)
    ends = sorted(exchange.stamps.ended_ns for exchange in exchanges)
    found = []
    for exchange in exchanges:
        at_ns = exchange.stamps.dispatched_ns
        itself_over = exchange.stamps.ended_ns <= at_ns
        found.append(bisect_right(starts, at_ns) - 1 - (bisect_right(ends, at_ns) - itself_over))
    return found


def medians(levels: Sequence[float], values: Sequence[float], most: int = 30) -> list[tuple[float, float]]:
    """Return (level, median of its values) in order, of levels with `LEAST_PER_LEVEL` values or more.

    More than `most` different levels become that many stretches of equal width, each named by the mean of its levels.
    """
    of, taken = np.asarray(levels, dtype=np.float64), np.asarray(values, dtype=np.float64)
    names, index = np.unique(of, return_inverse=True)
    if len(names) > most:
        index = np.digitize(of, np.linspace(names[0], names[-1], most + 1)[1:-1])
    return [
        (float(of[index == name].mean()), float(np.median(taken[index == name])))
        for name in np.unique(index)
        if np.count_nonzero(index == name) >= LEAST_PER_LEVEL
    ]


def windows(exchanges: Sequence[Exchange], start_ns: int) -> list[Window]:
    """Cut the time from the first to the last intended start into equal windows; none of a run too short for two.

    As all are equally long and none reaches beyond the last start, none shows a rate that only its end brought down.
    """
    dues = [due_ns(exchange) for exchange in exchanges]
    num_windows = min(NUM_WINDOWS, len(exchanges) // LEAST_PER_WINDOW)
    if num_windows < 2 or max(dues) == min(dues):
        return []
    first_ns, span_ns = min(dues), max(dues) - min(dues)
    sorted_into: list[list[Exchange]] = [[] for _ in range(num_windows)]
    for exchange, due in zip(exchanges, dues, strict=True):
        sorted_into[min(num_windows - 1, (due - first_ns) * num_windows // span_ns)].append(exchange)
    width_s = span_ns / num_windows / NS_PER_S
    return [
        _window((first_ns - start_ns) / NS_PER_S + number * width_s, width_s, of)
        for number, of in enumerate(sorted_into)
    ]


def _window(start_s: float, width_s: float, exchanges: Sequence[Exchange]) -> Window:
    ttfts = [ttft_ns(exchange) for exchange in exchanges if exchange.ok]
    ordered = np.sort([ttft / NS_PER_MS for ttft in ttfts if ttft is not None])
    return Window(
        start_s=start_s,
        width_s=width_s,
        num_ok=len(ttfts),
        num_failed=len(exchanges) - len(ttfts),
        ttft_p50_ms=percentile(ordered, 0.5) if len(ordered) else None,
        ttft_p95_ms=percentile(ordered, 0.95) if len(ordered) else None,
    )
