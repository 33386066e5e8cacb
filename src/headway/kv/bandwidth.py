"""How fast a tier gives blocks back, and whether that beats computing them. Pure; times come from the caller.

A tier's rate is an exponentially weighted mean of its reads' (the newest counts for a fifth). It goes back towards the
assumed rate, by half every minute without a read: a disk that was slow once is tried again. Means are geometric, since
rates differ by orders of magnitude, and an arithmetic one would forget a slow disk in a moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.clock import NS_PER_S

NEWEST_SHARE = 0.2
HALF_LIFE_S = 60.0


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second. `measured_ns`: when `bytes_per_s` was last measured; None = it is only assumed."""

    assumed_bytes_per_s: float
    bytes_per_s: float = 0.0
    measured_ns: int | None = None

    def at(self, now_ns: int) -> float:
        """Return what to expect."""
        if self.measured_ns is None:
            return self.assumed_bytes_per_s
        trust: float = 0.5 ** ((now_ns - self.measured_ns) / NS_PER_S / HALF_LIFE_S)
        return _mean(self.assumed_bytes_per_s, self.bytes_per_s, trust)

    def observed(self, num_bytes: int, took_ns: int, now_ns: int) -> "Bandwidth":
        """Return the rate after a read; one of nothing, or in no time, says nothing."""
        if took_ns <= 0 or num_bytes <= 0:
            return self
        newest = num_bytes * NS_PER_S / took_ns
        return Bandwidth(self.assumed_bytes_per_s, _mean(self.at(now_ns), newest, NEWEST_SHARE), now_ns)


def _mean(first: float, second: float, share_of_second: float) -> float:
    mean: float = first ** (1 - share_of_second) * second**share_of_second
    return mean


def num_worth_restoring(
    rates: Sequence[float], *, block_bytes: int, block_size: int, prefill_tokens_per_s: float | None
) -> int:
    """Return how many of the next blocks are restored: those whose restoring saves the most time over computing.

    rates                 bytes per second of the tier that each block lies in, from the first one on
    prefill_tokens_per_s  None = nothing was computed yet: whatever is there is restored
    """
    if prefill_tokens_per_s is None:
        return len(rates)
    compute_s = block_size / prefill_tokens_per_s
    best, best_saved_s, saved_s = 0, 0.0, 0.0
    for index, rate in enumerate(rates):
        saved_s += compute_s - block_bytes / rate
        if saved_s > best_saved_s:
            best, best_saved_s = index + 1, saved_s
    return best
