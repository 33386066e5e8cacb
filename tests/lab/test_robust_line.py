"""The line is found among points of which some lie anywhere, and of many points as of few."""

import numpy as np
import pytest

from headway.lab.robust_line import LEAST_SAMPLES, MOST_SAMPLES, robust_line


def test_a_line_is_found_among_stalls() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 8, 200)
    y = 5 + 0.4 * x + rng.normal(0, 0.05, 200)
    y[::10] += 500
    line = robust_line(x, y)
    assert line is not None
    assert line.base == pytest.approx(5, abs=0.1)
    assert line.slope == pytest.approx(0.4, abs=0.03)
    assert line.interval[0] <= 0.4 <= line.interval[1]
    assert line.n == 200


def test_many_points_that_repeat_are_not_taken_in_step() -> None:
    """Of two prompts by turns, every second point would be of one length alone."""
    num = 4 * MOST_SAMPLES
    line = robust_line(np.tile([2.0, 4.0], num // 2), np.tile([1.0, 7.0], num // 2))
    assert line is not None
    assert (line.slope, line.n) == (3, num)


def test_no_line_goes_through_too_little() -> None:
    few = list(range(LEAST_SAMPLES - 1))
    assert robust_line(few, few) is None
    assert robust_line([3.0] * 50, range(50)) is None


def test_a_slope_without_an_interval_is_not_told() -> None:
    """Kendall's variance, of which the interval is made, falls below zero where ties are many on both sides."""
    assert robust_line([1.0, 400.0] * 20, [5.0] * 40) is None


def test_what_is_no_point_is_refused() -> None:
    with pytest.raises(ValueError, match="1 x, but 2 y"):
        robust_line([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="not finite"):
        robust_line([1.0], [float("nan")])
