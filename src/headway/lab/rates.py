"""The most tokens that came within any second of a run, sane where chunks hold several tokens.

Tokens of a chunk are taken to have come evenly since the arrival before it; those of a first chunk came at its stamp. A
count of chunks, or of tokens heaped on their chunk's stamp, would take a burst of the network for a fast server.
"""

from collections.abc import Sequence

import numpy as np

from headway.core.clock import NS_PER_S
from headway.lab.arrival_table import ArrivalTable, arrival_table
from headway.lab.distribution import Floats, Ints
from headway.lab.exchange import Exchange


def peak_rate(exchanges: Sequence[Exchange], window_ns: int = NS_PER_S) -> float | None:
    """Return tokens per second in the busiest window, wherever it begins; None = no token came.

    A run shorter than the window has its tokens divided by the window: it did not keep any rate for so long.
    """
    table = arrival_table(exchanges)
    if not len(table.at_ns):
        return None
    curve = TokensUntil(table)
    times = curve.times
    behind = curve.until(times) - curve.before(times - window_ns)
    ahead = curve.until(times + window_ns) - curve.before(times)
    return float(max(behind.max(), ahead.max())) * NS_PER_S / window_ns


class TokensUntil:
    """Tokens that came up to a time: straight between `times`, with steps where first chunks came.

    Not for an empty table.
    """

    def __init__(self, table: ArrivalTable) -> None:
        first = table.is_first
        later = np.flatnonzero(~first)
        slopes = table.num_tokens[later] / (table.at_ns[later] - table.at_ns[later - 1])
        self.times, place = np.unique(table.at_ns, return_inverse=True)
        size = len(self.times)
        self._heaps = np.bincount(place[first], table.num_tokens[first], size)
        changes = np.bincount(place[later - 1], slopes, size) - np.bincount(place[later], slopes, size)
        self._slopes = np.cumsum(changes)
        grown = self._slopes[:-1] * np.diff(self.times)
        self._totals = np.cumsum(self._heaps + np.concatenate([[0.0], grown]))

    def until(self, at_ns: Ints) -> Floats:
        """Tokens that came at each of `at_ns` or before."""
        place = np.searchsorted(self.times, at_ns, side="right") - 1
        found = self._totals[place] + self._slopes[place] * (at_ns - self.times[place])
        return np.where(place >= 0, found, 0.0)

    def before(self, at_ns: Ints) -> Floats:
        """Tokens that came before each of `at_ns`."""
        place = np.minimum(np.searchsorted(self.times, at_ns), len(self.times) - 1)
        return self.until(at_ns) - np.where(self.times[place] == at_ns, self._heaps[place], 0.0)
