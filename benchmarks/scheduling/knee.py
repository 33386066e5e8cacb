"""The highest rate that keeps the SLO: which rate to try next, and what was found. Pure functions.

It goes up or down by a factor until one rate is kept and a higher one is not, then halves the gap between them on a
logarithmic scale. A rate that is kept above one that was not is luck, and counts for nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 2.0
"""Where a burst thrashes a cache, what a server answered of it says little: the way up has to be short."""
RESOLUTION = 0.12
"""Of the last gap, over its lower end: finer than two runs of one rate differ on a busy machine makes no sense."""
LEAST_RATE = 0.2
"""Requests per second; a server that does not keep the SLO here has no knee."""
MOST_TRIALS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """A rate that was measured, and whether it kept the SLO."""

    rate: float
    kept: bool


def next_rate(trials: Sequence[Trial], start: float) -> float | None:
    """Return the rate to measure after `trials`, `start` first; None = it is found, or as near as so many trials allow."""
    if not trials:
        return start
    if len(trials) >= MOST_TRIALS:
        return None
    low, high = bracket(trials)
    if high is None:
        return max(trial.rate for trial in trials) * FACTOR
    if low is None:
        rate = min(trial.rate for trial in trials) / FACTOR
        return rate if rate >= LEAST_RATE else None
    return math.sqrt(low * high) if high / low > 1 + RESOLUTION else None


def bracket(trials: Sequence[Trial]) -> tuple[float | None, float | None]:
    """Return the highest rate that was kept below all that were not, and the lowest that was not; None = none was."""
    high = min((trial.rate for trial in trials if not trial.kept), default=None)
    kept = [trial.rate for trial in trials if trial.kept and (high is None or trial.rate < high)]
    return max(kept, default=None), high
