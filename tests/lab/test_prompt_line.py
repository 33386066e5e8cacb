"""The cost of a prompt's tokens is found, stalls or not."""

import math

import numpy as np
import pytest

from headway.lab.prompt_line import fit_prompt_line


def test_a_line_is_found() -> None:
    tokens = list(range(100, 4_100, 100))
    line = fit_prompt_line(tokens, [12 + 0.085 * number for number in tokens])
    assert line is not None
    assert (line.base_ms, line.ms_per_1k) == pytest.approx((12, 85))
    assert line.n == 40


def test_noise_and_stalled_requests_move_it_little() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(100):
        tokens = rng.integers(100, 4_000, 60)
        times = 12 + 0.023 * tokens + rng.normal(0, 3, 60)
        times[:6] += 2_000  # a tenth stalls
        line = fit_prompt_line([int(number) for number in tokens], list(times))
        assert line is not None
        assert line.ms_per_1k == pytest.approx(23, abs=3)
        held += line.interval[0] <= 23 <= line.interval[1]
    assert held >= 88


def test_no_line_goes_through_too_little() -> None:
    assert fit_prompt_line([1, 2, 3], [1.0, 2.0, 3.0]) is None
    assert fit_prompt_line([500] * 20, [float(number) for number in range(20)]) is None
    assert fit_prompt_line([], []) is None


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="2 x, but 1 y"):
        fit_prompt_line([1, 2], [1.0])
    with pytest.raises(ValueError, match="not finite"):
        fit_prompt_line([1, 2], [1.0, math.inf])
