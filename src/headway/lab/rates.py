"""The most tokens that came within any second of a run, sane where chunks hold several tokens.

Tokens of a chunk are taken to have come evenly since the arrival before it; those of a first chunk came at its stamp. A
count of chunks, or of tokens heaped on their chunk's stamp, would take a burst of the network for a fast server.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from headway.core.clock import NS_PER_S
from headway.lab.exchange import Exchange
from headway.lab.tokens import arrivals


def peak_rate(exchanges: Iterable[Exchange], window_ns: int = NS_PER_S) -> float | None:
    """Return tokens per second in the busiest window, wherever it begins; None = no token came.

    A run shorter than the window has its tokens divided by the window: it did not keep any rate for so long.
    """
    heaps: dict[int, int] = defaultdict(int)
    slopes: dict[int, float] = defaultdict(float)
    for exchange in exchanges:
        _, came = arrivals(exchange)
        for first in came[:1]:
            heaps[first.at_ns] += first.num_tokens
        for previous, arrival in pairwise(came):
            slope = arrival.num_tokens / (arrival.at_ns - previous.at_ns)
            slopes[previous.at_ns] += slope
            slopes[arrival.at_ns] -= slope
    if not heaps:
        return None
    curve = _Cumulative(heaps, slopes)
    most = max(
        max(
            curve.until(at_ns) - curve.before(at_ns - window_ns),
            curve.until(at_ns + window_ns) - curve.before(at_ns),
        )
        for at_ns in curve.times
    )
    return most * NS_PER_S / window_ns


class _Cumulative:
    """Tokens that came up to a time: straight between `times`, with steps where first chunks came."""

    def __init__(self, heaps: dict[int, int], slopes: dict[int, float]) -> None:
        self.times = sorted(heaps.keys() | slopes.keys())
        self._totals: list[float] = []
        self._slopes: list[float] = []
        self._heaps = [heaps.get(at_ns, 0) for at_ns in self.times]
        total = slope = 0.0
        before_ns = self.times[0]
        for at_ns, heap in zip(self.times, self._heaps, strict=True):
            total += slope * (at_ns - before_ns) + heap
            slope += slopes.get(at_ns, 0.0)
            before_ns = at_ns
            self._totals.append(total)
            self._slopes.append(slope)

    def until(self, at_ns: int) -> float:
        """Tokens that came at `at_ns` or before."""
        i = bisect_right(self.times, at_ns) - 1
        return self._totals[i] + self._slopes[i] * (at_ns - self.times[i]) if i >= 0 else 0.0

    def before(self, at_ns: int) -> float:
        """Tokens that came before `at_ns`."""
        i = bisect_left(self.times, at_ns)
        is_time = i < len(self.times) and self.times[i] == at_ns
        return self.until(at_ns) - (self._heaps[i] if is_time else 0)
