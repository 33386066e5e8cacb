"""How a run goes so far: requests are added when they are over, and a snapshot says what a person watching wants to know.

Memory does not grow with the run: latencies go to HDR histograms (Tene, hdrhistogram.org: three digits at any magnitude,
from a microsecond up), one for each of the last seconds and one for all before them. Its percentiles are those of the lab,
the smallest value that at least the wanted share does not exceed, rounded up to three digits. It knows no terminal and no
load.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import LEAST_SAMPLES
from headway.lab.sample import Sample

WINDOW_S = 10
"""What counts as recent."""
SHOWN: Mapping[str, float] = MappingProxyType({"p50": 0.5, "p95": 0.95, "p99": 0.99})

_NS_PER_US = 1_000
_US_PER_MS = NS_PER_MS // _NS_PER_US
_MAX_US = 3_600_000_000
"""What takes longer than an hour counts as an hour."""
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles in ms, by the names of `SHOWN`; None is what so few values cannot tell. `n`: values."""

    n: int
    percentiles: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The requests that ended within some time. Of the failed ones only the lag counts."""

    seconds: float
    num_ended: int
    num_ok: int
    output_tokens: int
    lag: Spread
    ttft: Spread
    itl: Spread
    """Over tokens, each with the mean of its request."""

    @property
    def answered_s(self) -> float | None:
        """Requests answered per second; None: no time has passed."""
        return self.num_ok / self.seconds if self.seconds else None

    @property
    def output_tok_s(self) -> float | None:
        """Tokens per second of the requests that ended."""
        return self.output_tokens / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run so far. `has_begun`: False while it is prepared."""

    has_begun: bool
    whole: Span
    recent: Span
    """The last `WINDOW_S` seconds and the one that has begun, or as much of them as there was."""
    num_running: int
    """Requests that are sent and not over."""
    num_planned: int | None
    """Requests in all; None: their number does not end the run."""
    planned_s: float | None
    """Time in which requests start; None: time does not end the run."""
    failures: Mapping[str, int]
    """By label, most frequent first."""

    @property
    def offered_s(self) -> float | None:
        """Requests sent per second since the start."""
        seconds = self.whole.seconds
        return (self.whole.num_ended + self.num_running) / seconds if seconds else None

    @property
    def share_done(self) -> float | None:
        """From 0 to 1, by what ends the run first; None: nobody knows."""
        shares = []
        if self.num_planned is not None:
            shares.append(self.whole.num_ended / self.num_planned if self.num_planned else 1.0)
        if self.planned_s is not None:
            shares.append(self.whole.seconds / self.planned_s if self.planned_s else 1.0)
        return min(1.0, max(shares)) if shares else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the end, by what ends the run first and by the rate of late; None: nobody knows."""
        ends = []
        if self.planned_s is not None:
            ends.append(self.planned_s - self.whole.seconds)
        if self.num_planned is not None:
            left = self.num_planned - self.whole.num_ended
            span = self.recent if self.recent.num_ended else self.whole
            if span.num_ended:
                ends.append(left * span.seconds / span.num_ended)
        return max(0.0, min(ends)) if ends else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What is known of a load when it begins; see `Progress`, which is told of it."""

    num_requests: int | None
    duration_ns: int | None
    num_running: Callable[[], int]


class Progress:
    """Belongs to one thread. `clock_ns` is the clock of the stamps; the run begins with `set_planned`, or with a sample."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._start_ns: int | None = None
        self._running: Callable[[], int] = lambda: 0
        self._num_planned: int | None = None
        self._duration_ns: int | None = None
        self._before = _Tally()
        self._seconds: dict[int, _Tally] = {}
        """The last seconds by the clock's, in no order."""
        self._failures: Counter[str] = Counter()

    def set_planned(self, num_requests: int | None, duration_ns: int | None) -> None:
        """Say what ends the run, which begins now."""
        self._num_planned = num_requests
        self._duration_ns = duration_ns
        self._begin()

    def set_running(self, num_running: int) -> None:
        """Say how many requests are sent and not over, until it is said again."""
        self._running = lambda: num_running

    def follow(self, num_running: Callable[[], int]) -> None:
        """Ask this for the number with each snapshot instead."""
        self._running = num_running

    def add(self, sample: Sample) -> None:
        """Count a request that is over."""
        self._begin()
        if sample.failure is not None:
            self._failures[sample.failure] += 1
        second = sample.ended_ns // NS_PER_S
        tally = self._seconds.get(second)
        if tally is None:
            newest = max(self._seconds, default=second)
            if second < newest - WINDOW_S:  # told very late
                tally = self._before
            else:
                tally = self._seconds[second] = _Tally()
                self._settle(max(newest, second))
        tally.add(sample)

    def snapshot(self) -> Snapshot:
        """Return how the run goes now."""
        now_ns = self._clock_ns()
        start_ns = now_ns if self._start_ns is None else self._start_ns
        now_ns = max(now_ns, start_ns)
        self._settle(now_ns // NS_PER_S)
        recent = list(self._seconds.values())
        recent_from_ns = max(start_ns, (now_ns // NS_PER_S - WINDOW_S) * NS_PER_S)
        return Snapshot(
            has_begun=self._start_ns is not None,
            whole=_span([self._before, *recent], (now_ns - start_ns) / NS_PER_S),
            recent=_span(recent, (now_ns - recent_from_ns) / NS_PER_S),
            num_running=self._running(),
            num_planned=self._num_planned,
            planned_s=None if self._duration_ns is None else self._duration_ns / NS_PER_S,
            failures=MappingProxyType(
                dict(sorted(self._failures.items(), key=lambda item: (-item[1], item[0])))
            ),
        )

    def _begin(self) -> None:
        if self._start_ns is None:
            self._start_ns = self._clock_ns()

    def _settle(self, now_second: int) -> None:
        """Add what is no longer recent to all before it."""
        for second in [second for second in self._seconds if second < now_second - WINDOW_S]:
            self._before.take(self._seconds.pop(second))


def _histogram() -> HdrHistogram:
    return HdrHistogram(1, _MAX_US, _DIGITS)


_LAYOUT: Final = _histogram()
"""Stays empty: where in all of them a value is counted."""


@dataclass(slots=True)
class _Tally:
    """What ended within a second, or before all of the last ones. Histograms count microseconds."""

    num_ended: int = 0
    num_ok: int = 0
    output_tokens: int = 0
    lag: HdrHistogram = field(default_factory=_histogram)
    ttft: HdrHistogram = field(default_factory=_histogram)
    itl: HdrHistogram = field(default_factory=_histogram)

    def add(self, sample: Sample) -> None:
        self.num_ended += 1
        self.lag.record_value(_us(sample.lag_ns))
        if not sample.ok:
            return
        self.num_ok += 1
        self.output_tokens += sample.output_tokens
        if sample.ttft_ns is not None:
            self.ttft.record_value(_us(sample.ttft_ns))
        if sample.itl_ns is not None:
            self.itl.record_value(_us(sample.itl_ns), sample.num_intervals)

    def take(self, other: "_Tally") -> None:
        self.num_ended += other.num_ended
        self.num_ok += other.num_ok
        self.output_tokens += other.output_tokens
        for mine, theirs in ((self.lag, other.lag), (self.ttft, other.ttft), (self.itl, other.itl)):
            if theirs.get_total_count():
                mine.add(theirs)


def _us(duration_ns: float) -> int:
    return min(round(duration_ns / _NS_PER_US), _MAX_US)


def _span(tallies: Sequence[_Tally], seconds: float) -> Span:
    return Span(
        seconds=seconds,
        num_ended=sum(tally.num_ended for tally in tallies),
        num_ok=sum(tally.num_ok for tally in tallies),
        output_tokens=sum(tally.output_tokens for tally in tallies),
        lag=_spread([tally.lag for tally in tallies]),
        ttft=_spread([tally.ttft for tally in tallies]),
        itl=_spread([tally.itl for tally in tallies]),
    )


def _spread(histograms: Sequence[HdrHistogram]) -> Spread:
    """Read several histograms as one. The library's own percentiles take a millisecond each, which a run would feel."""
    highest = max((histogram.get_max_value() for histogram in histograms), default=0)
    length = _LAYOUT.get_counts_array_index(highest) + 1
    counts = np.zeros(length, dtype=np.uint64)
    for histogram in histograms:
        if histogram.get_total_count():
            counts += np.frombuffer(histogram.counts, dtype=np.uint64, count=length)
    up_to = np.cumsum(counts)
    n = int(up_to[-1])
    found: dict[str, float | None] = {}
    for name, share in SHOWN.items():
        if n < LEAST_SAMPLES.get(name, 1):
            found[name] = None
            continue
        index = int(np.searchsorted(up_to, max(1, math.ceil(round(n * share, 9)))))
        value_us = _LAYOUT.get_highest_equivalent_value(_LAYOUT.get_value_from_index(index))
        found[name] = value_us / _US_PER_MS
    return Spread(n=n, percentiles=MappingProxyType(found))
