"""Fits what steps take to what they carried: least squares of relative errors, no coefficient below zero.

Relative, so that steps of a millisecond count as much as those of a second. Not below zero, because more work takes no less
time, and because what is fitted so stays sensible beyond what was measured (Lawson and Hanson, "Solving Least Squares
Problems", 1974, chapter 23).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from headway.simulator.calibration import TERMS, Fit, terms
from headway.simulator.step_load import StepLoad


@dataclass(frozen=True, slots=True)
class Timed:
    """A step that was run: what it carried, and the median of its durations."""

    load: StepLoad
    duration_ns: float


def fit_steps(fitted: Sequence[Timed], held_out: Sequence[Timed]) -> tuple[Mapping[str, float], Fit]:
    """Return coefficients by `TERMS`, in ns, and how far they are off; raises ValueError without steps of both kinds."""
    if not fitted or not held_out:
        raise ValueError("a fit needs steps to fit and others to judge it by")
    numbers = np.array([terms(timed.load) for timed in fitted])
    durations = np.array([timed.duration_ns for timed in fitted])
    coefficients = np.array(fit_sum(numbers, durations, durations))
    of_fitted, of_others = (_errors(coefficients, steps) for steps in (fitted, held_out))
    return dict(zip(TERMS, coefficients.tolist(), strict=True)), Fit(
        num_fitted=len(fitted),
        fitted_median=float(np.median(of_fitted)),
        num_held_out=len(held_out),
        held_out_median=float(np.median(of_others)),
        held_out_p90=float(np.quantile(of_others, 0.9)),
    )


def fit_sum(rows: ArrayLike, ys: ArrayLike, units: ArrayLike) -> list[float]:
    """Return the weights, none below zero, with which each row's numbers come nearest to its y, counted in its unit."""
    each = np.array(units, dtype=np.float64)
    numbers = np.array(rows, dtype=np.float64)
    scales = numbers.max(axis=0)
    scales[scales == 0] = 1.0
    found, _ = nnls(numbers / scales / each[:, None], np.maximum(0.0, np.array(ys, dtype=np.float64)) / each)
    weights: list[float] = (found / scales).tolist()
    return weights


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return (base, slope) of y = base + slope x, neither below zero; of one point all is base."""
    has_slope = len(set(xs)) > 1
    base, slope = fit_sum([(1.0, x if has_slope else 0.0) for x in xs], ys, [1.0] * len(xs))
    return base, slope


def _errors(
    coefficients: "np.ndarray[tuple[int], np.dtype[np.float64]]", steps: Sequence[Timed]
) -> list[float]:
    return [abs(float(np.dot(coefficients, terms(timed.load))) / timed.duration_ns - 1) for timed in steps]
