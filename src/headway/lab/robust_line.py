"""A straight line through points of which some lie anywhere: Theil's and Sen's. A pure function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from headway.lab.distribution import CONFIDENCE, Floats, Interval

LEAST_SAMPLES = 8
MOST_SAMPLES = 1_000
"""Of these all pairs are looked at, half a million. Of more, so many are drawn by seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = base + slope x."""

    base: float
    slope: float
    interval: Interval
    """Of the slope, at a confidence of 95 %."""
    n: int
    """Points it is the line of."""


def robust_line(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> Line | None:
    """Return the line by Theil and Sen: medians of slopes between pairs, which a tenth of stalled requests does not move.

    None with fewer than `LEAST_SAMPLES` points, or if all have one x, or if ties are so many that the slope has no
    interval. Raises ValueError for unequal numbers of x and y, or
    what is not finite.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(xs) != len(ys):
        raise ValueError(f"{len(xs)} x, but {len(ys)} y")
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise ValueError("a point is not finite")
    if len(xs) > MOST_SAMPLES:
        drawn = np.sort(np.random.default_rng(0).choice(len(xs), MOST_SAMPLES, replace=False))
        xs, ys = xs[drawn], ys[drawn]
    if len(xs) < LEAST_SAMPLES or xs.min() == xs.max():
        return None
    with np.errstate(invalid="ignore"):
        line = stats.theilslopes(ys, xs, CONFIDENCE, method="joint")
    if not math.isfinite(line.low_slope + line.high_slope):
        return None
    return Line(
        base=float(line.intercept),
        slope=float(line.slope),
        interval=(float(line.low_slope), float(line.high_slope)),
        n=len(x),
    )
