"""The rule that finds a warm-up: nothing of a steady run, the slow start of another, and no answer where there is none."""

import math

import numpy as np
import pytest

from headway.lab.warm_up import warm_up_length


def steady(num_samples: int, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(100.0, 5.0, num_samples))


def test_a_slow_start_is_left_out_and_not_much_more() -> None:
    slow = [400.0, 380.0, 300.0, 250.0, 240.0, 180.0, 170.0, 150.0, 140.0, 130.0]
    for seed in range(20):
        found = warm_up_length([*slow, *steady(190, seed)])
        assert found is not None
        assert 10 <= found <= 50


def test_most_of_a_steady_run_is_kept() -> None:
    lengths = [warm_up_length(steady(200, seed)) for seed in range(100)]
    assert sum(length is not None and length <= 50 for length in lengths) >= 85


def test_equal_samples_have_no_warm_up() -> None:
    assert warm_up_length([5.0] * 100) == 0


def test_a_run_that_only_rises_never_becomes_steady() -> None:
    assert warm_up_length([float(number) for number in range(200)]) is None


@pytest.mark.parametrize("num_samples", [0, 1, 19])
def test_of_a_few_samples_nothing_is_left_out(num_samples: int) -> None:
    assert warm_up_length([1e9, *steady(num_samples)][:num_samples]) == 0


def test_a_failure_is_no_latency() -> None:
    with pytest.raises(ValueError, match="not finite"):
        warm_up_length([1.0, math.inf])
