"""Figures as a report writes them: as many digits as are worth reading. Pure functions."""

import math

from headway.lab.distribution import Distribution

NOT_TOLD = "–"


def number(value: float) -> str:
    """Return a number with three digits, or all before the point: 0.123, 12.3, 1,234; ∞ for what failures made endless."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percentile_text(found: Distribution, name: str, not_told: str = NOT_TOLD) -> str:
    """Return a percentile with its interval, as in `12 (11 to 14)`."""
    value, interval = found.percentiles[name], found.intervals[name]
    if value is None:
        return not_told
    if interval is None:
        return number(value)
    return f"{number(value)} ({number(interval[0])} to {number(interval[1])})"


def mean_text(found: Distribution, not_told: str = NOT_TOLD) -> str:
    """Return the mean and the standard deviation, as in `12 ± 3`."""
    if found.mean is None:
        return not_told
    return number(found.mean) + ("" if found.std is None else f" ± {number(found.std)}")
