"""The functions against the C library's, the distributions against their closed forms, the bits against pinned ones."""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.variates import exp, exponential, gamma, ln, normal

NUM_DRAWS = 20_000
KOLMOGOROV_1E_5 = 2.47 / math.sqrt(NUM_DRAWS)
"""A right sampler's largest distance from its distribution exceeds this for one seed in 100,000: 2 exp(-2 · 2.47²)."""


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_ln_is_the_logarithm(x: float) -> None:
    assert math.isclose(ln(x), math.log(x), rel_tol=1e-14, abs_tol=1e-16)


@given(st.floats(min_value=-699, max_value=0))
def test_exp_is_the_exponential(x: float) -> None:
    assert math.isclose(exp(x), math.exp(x), rel_tol=1e-13)


def test_exp_of_what_underflows_is_zero() -> None:
    assert exp(-1e4) == 0.0
    assert exp(-math.inf) == 0.0


def distance(draw: Callable[[Random], float], distribution: Callable[[float], float]) -> float:
    """Return the Kolmogorov-Smirnov statistic of NUM_DRAWS draws."""
    random = Random(7)
    levels = sorted(distribution(draw(random)) for _ in range(NUM_DRAWS))
    return max(
        max((rank + 1) / NUM_DRAWS - level, level - rank / NUM_DRAWS) for rank, level in enumerate(levels)
    )


def erlang_2(x: float) -> float:
    return 1 - math.exp(-x) * (1 + x)


def erlang_4(x: float) -> float:
    return 1 - math.exp(-x) * (1 + x + x**2 / 2 + x**3 / 6)


@pytest.mark.parametrize(
    ("draw", "distribution"),
    [
        (exponential, lambda x: 1 - math.exp(-x)),
        (normal, lambda x: (1 + math.erf(x / math.sqrt(2))) / 2),
        (lambda random: gamma(random, 0.5), lambda x: math.erf(math.sqrt(x))),  # half a χ² of one degree
        (lambda random: gamma(random, 1.0), lambda x: 1 - math.exp(-x)),
        (
            lambda random: gamma(random, 1.5),
            lambda x: math.erf(x**0.5) - 2 * (x / math.pi) ** 0.5 * math.exp(-x),
        ),
        (lambda random: gamma(random, 2.0), erlang_2),
        (lambda random: gamma(random, 4.0), erlang_4),
    ],
    ids=["exponential", "normal", "gamma 0.5", "gamma 1", "gamma 1.5", "gamma 2", "gamma 4"],
)
def test_draws_follow_their_distribution(
    draw: Callable[[Random], float], distribution: Callable[[float], float]
) -> None:
    assert distance(draw, distribution) < KOLMOGOROV_1E_5


@pytest.mark.parametrize("shape", [0.01, 0.1, 100.0])
def test_gamma_has_the_mean_and_the_deviation_of_its_shape(shape: float) -> None:
    random = Random(7)
    draws = [gamma(random, shape) for _ in range(NUM_DRAWS)]
    mean = sum(draws) / NUM_DRAWS
    variance = sum((draw - mean) ** 2 for draw in draws) / NUM_DRAWS
    mean_error, variance_error = (
        math.sqrt(shape / NUM_DRAWS),
        math.sqrt((6 * shape + 2 * shape**2) / NUM_DRAWS),
    )
    assert abs(mean - shape) < 4.5 * mean_error
    assert abs(variance - shape) < 4.5 * variance_error


def test_draws_are_the_same_bits_everywhere() -> None:
    random = Random("variates:1")
    assert [
        draw.hex() for draw in (exponential(random), normal(random), gamma(random, 0.5), gamma(random, 2.5))
    ] == ["0x1.8b46aad7f6309p+0", "0x1.ecab6058aff00p-1", "0x1.33e520e97803ep-1", "0x1.7e062361a057dp+1"]
