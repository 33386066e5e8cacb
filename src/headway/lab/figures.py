"""A latency of many requests, over those that succeeded and again with failures as infinity; and what JSON says of it.

Durations are milliseconds here. A server that refuses its slowest requests is no faster for it: that is what the second
view is for. Pure functions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.clock import NS_PER_MS
from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.goodput import values


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One latency of many requests, in milliseconds."""

    successes: Distribution
    all_requests: Distribution
    """Failures are infinite."""


def figure(of: Callable[[Exchange], float | None], exchanges: Sequence[Exchange]) -> Figure:
    """Return a figure that `of` tells in nanoseconds; its intervals draw whole conversations."""
    found = values(of, exchanges)
    successes = describe(np.asarray(found.successes) / NS_PER_MS, found.success_conversations)
    if len(found.successes) == len(found.all_requests):
        return Figure(successes=successes, all_requests=successes)
    everything = describe(np.asarray(found.all_requests) / NS_PER_MS, found.all_conversations)
    return Figure(successes=successes, all_requests=everything)


def distribution_json(found: Distribution) -> dict[str, object]:
    """Return a distribution as JSON's types: null is what so few samples cannot tell, "inf" what failures made endless."""
    return {
        **{name: rounded(value) for name, value in found.percentiles.items()},
        "mean": rounded(found.mean),
        "std": rounded(found.std),
        "n": found.n,
        "ci95": {name: interval_json(interval) for name, interval in found.intervals.items()},
    }


def figure_json(found: Figure) -> dict[str, object]:
    """Return a distribution's JSON with the percentiles of all requests beside it."""
    with_failures = {name: rounded(value) for name, value in found.all_requests.percentiles.items()}
    return distribution_json(found.successes) | {"with_failures": with_failures}


def interval_json(interval: tuple[float, float] | None) -> list[object] | None:
    """Return an interval as JSON's types."""
    return None if interval is None else [rounded(end) for end in interval]


def rounded(value: float | None) -> float | str | None:
    """Return a number with six digits, which is more than any clock here knows."""
    if value is None:
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else "inf"
