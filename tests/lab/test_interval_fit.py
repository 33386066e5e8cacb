"""Intervals drawn from a family are recognised as of it, and what none of them describes is called so."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from headway.lab.distribution import Floats
from headway.lab.interval_fit import FAMILIES, LEAST_SAMPLES, IntervalModel, fit_intervals

RNG_SEEDS = range(3)


def found(samples: Sequence[float] | Floats) -> IntervalModel:
    model = fit_intervals(samples)
    assert model is not None
    return model


def drawn(family: str, rng: np.random.Generator) -> Floats:
    if family == "lognormal":
        return rng.lognormal(2.3, 0.6, 3_000)
    if family == "gamma":
        return rng.gamma(3.0, 4.0, 3_000)
    if family == "weibull":
        return 10 * rng.weibull(2.5, 3_000)
    steps, mixed = rng.lognormal(2.0, 0.1, 3_000), rng.lognormal(4.0, 0.3, 3_000)
    return np.where(rng.random(3_000) < 0.9, steps, mixed)


@pytest.mark.parametrize("seed", RNG_SEEDS)
@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull", "two lognormals"])
def test_a_family_is_recognised_and_fits(family: str, seed: int) -> None:
    model = found(drawn(family, np.random.default_rng(seed)))
    assert model.fits[0].family == family
    assert len(model.fits) == 4
    assert model.distance < 0.03
    assert model.p_value > 0.01


def test_parameters_are_those_that_were_drawn_with() -> None:
    rng = np.random.default_rng(5)
    samples = np.where(
        rng.random(5_000) < 0.8, rng.lognormal(1.0, 0.2, 5_000), rng.lognormal(3.0, 0.4, 5_000)
    )
    best = found(samples).fits[0].parameters
    for name, truth in (("share", 0.8), ("mu", 1.0), ("sigma", 0.2), ("mu_2", 3.0), ("sigma_2", 0.4)):
        assert best[name] == pytest.approx(truth, abs=0.05)


def test_what_no_family_describes_is_refused() -> None:
    rng = np.random.default_rng(1)
    three = np.concatenate([rng.normal(centre, 0.2, 700) for centre in (5.0, 20.0, 80.0)])
    rng.shuffle(three)
    model = found(three)
    assert model.p_value < 0.05
    assert model.distance > 0.05


def test_a_hundred_samples_of_one_family_are_seldom_two() -> None:
    best = [found(np.random.default_rng(seed).lognormal(1.0, 0.2, 100)).fits[0].family for seed in range(40)]
    assert best.count("two lognormals") <= 2


def test_likelihoods_are_of_densities() -> None:
    """The density of each family integrates to one, so that their AIC may be compared."""
    rng = np.random.default_rng(2)
    samples = rng.lognormal(0.0, 0.5, 500)
    grid = np.linspace(1e-4, 60.0, 200_001)
    for fit in found(samples).fits:
        family, parameters = FAMILIES[fit.family], tuple(fit.parameters.values())
        density = np.exp(family.log_density(grid, *parameters))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=2e-3)
        below = family.share_below(np.array([2.0]), *parameters)[0]
        assert np.trapezoid(density[grid <= 2.0], grid[grid <= 2.0]) == pytest.approx(below, abs=2e-3)
        assert fit.aic == pytest.approx(2 * len(parameters) - 2 * fit.log_likelihood)


def test_tokens_that_came_together_are_counted_apart() -> None:
    rng = np.random.default_rng(4)
    samples = [*rng.lognormal(1.0, 0.3, 100), *[0.0] * 17]
    model = found(samples)
    assert (model.n, model.num_zero) == (100, 17)


def test_too_few_or_equal_intervals_have_no_model() -> None:
    assert fit_intervals([1.0 + 0.1 * number for number in range(LEAST_SAMPLES - 1)]) is None
    assert fit_intervals([5.0] * 100) is None
    assert fit_intervals([]) is None


@pytest.mark.parametrize("sample", [-1.0, math.nan, math.inf])
def test_what_is_no_interval_is_refused(sample: float) -> None:
    with pytest.raises(ValueError, match="negative or not finite"):
        fit_intervals([1.0] * 60 + [sample])


def test_the_same_samples_have_the_same_model() -> None:
    samples = np.random.default_rng(9).gamma(2.0, 1.0, 300)
    assert fit_intervals(samples) == fit_intervals(samples)
