"""Which distribution inter-token intervals follow: lognormal, gamma, Weibull, or two lognormals that alternate.

The last is what a decode stream looks like that shares steps with others' prompts: most intervals are a decode step, some a
step with a chunk of a prompt in it. All have positive support and start at zero; the one with the smallest AIC is named, and
whether even that one fits is judged by a parametric bootstrap, since p-values that know the parameters are wrong where these
were estimated from the same data (Stute, Gonzalez-Manteiga and Presedo-Quindimil, Metrika 40, 1993). Pure functions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from scipy import stats

from headway.lab.distribution import Floats

LEAST_SAMPLES = 50
"""With fewer every one of these fits."""
MOST_JUDGED = 1_000
"""Samples that goodness is judged with: with many more any model is refused. Then see `distance`."""
RESAMPLES = 99
"""A p-value then has steps of a hundredth."""
MOST_FITTED = 20_000
"""Samples that parameters are estimated from: more would not change a digit that is shown."""

_MOST_GROUPS = 400
"""Neighbours that the mixture's search takes together, by their mean and variance; likelihoods are of all samples."""
Verdict = Literal["fits", "near", "refused"]
REFUSED = 0.05
"""A p-value below it refuses a model."""
NEAR = 0.05
"""What is refused only because samples are many still describes them, if no share is off by more."""

MIXTURE_HANDICAP = 10.0
"""By how much the AIC of two lognormals must be better: one of them can shrink around a few samples that lie close by
chance, and AIC knows nothing of that. 10 leaves the other model without support (Burnham and Anderson 2002, section 2.6).
"""

_EM_ROUNDS = 200
_EM_TOLERANCE = 1e-7
_LEAST_SPREAD = 1e-6
"""Of logarithms; fitting by likelihood fails below."""
_LEAST_SIGMA = 1e-3
"""Of one part of a mixture, of logarithms: without a bound a part that shrinks to one sample is infinitely likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One family with the parameters of greatest likelihood."""

    family: str
    parameters: Mapping[str, float]
    """Scales in the samples' unit; `mu` and `sigma` are of the natural logarithm."""
    log_likelihood: float
    aic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalModel:
    """What was found of one sample of intervals."""

    n: int
    """Positive samples."""
    num_zero: int
    """Left out: tokens that came together have no interval between them that says anything."""
    fits: Sequence[Fit]
    """Best first: by AIC, see `MIXTURE_HANDICAP`."""
    distance: float
    """Kolmogorov-Smirnov's, of the best: the largest difference of shares between the model and the samples."""
    p_value: float
    """How often samples of the model itself, fitted anew, lie as far from their fit."""

    @property
    def verdict(self) -> Verdict:
        """Whether the best describes the samples."""
        if self.p_value >= REFUSED:
            return "fits"
        return "near" if self.distance <= NEAR else "refused"


@dataclass(frozen=True, slots=True)
class _Family:
    names: tuple[str, ...]
    fit: Callable[[Floats], tuple[float, ...]]
    log_density: Callable[..., Floats]
    share_below: Callable[..., Floats]
    draw: Callable[..., Floats]
    refine: Callable[[Floats, tuple[float, ...]], tuple[float, ...]] | None = None
    """Fits samples that were drawn with known parameters; None: as any others."""

    def fit_near(self, values: Floats, parameters: tuple[float, ...]) -> tuple[float, ...]:
        return self.fit(values) if self.refine is None else self.refine(values, parameters)


def fit_intervals(samples: Sequence[float] | Floats) -> IntervalModel | None:
    """Return the models of positive `samples`; None with fewer than `LEAST_SAMPLES` or if all of them are equal.

    Raises ValueError for a sample that is negative or not finite.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("an interval is negative or not finite")
    positive = values[values > 0]
    if len(positive) < LEAST_SAMPLES or positive.min() == positive.max():
        return None
    fitted = _drawn(positive, MOST_FITTED)
    if np.log(fitted).std() < _LEAST_SPREAD:  # equal but for rounding
        return None
    # Times that hardly differ, as a simulation's, have shapes of several hundred, whose powers are beyond any float.
    with np.errstate(over="ignore"):
        fits = sorted((_fit(name, fitted) for name in FAMILIES), key=_standing)
        best = FAMILIES[fits[0].family]
        parameters = tuple(fits[0].parameters.values())
        return IntervalModel(
            n=len(positive),
            num_zero=len(values) - len(positive),
            fits=fits,
            distance=_distance(best, parameters, fitted),
            p_value=_p_value(best, positive),
        )


def _standing(fit: Fit) -> float:
    return fit.aic + (MIXTURE_HANDICAP if fit.family == "two lognormals" else 0)


def _fit(name: str, values: Floats) -> Fit:
    family = FAMILIES[name]
    parameters = family.fit(values)
    log_likelihood = float(family.log_density(values, *parameters).sum())
    return Fit(
        family=name,
        parameters=MappingProxyType(dict(zip(family.names, parameters, strict=True))),
        log_likelihood=log_likelihood,
        aic=2 * len(parameters) - 2 * log_likelihood,
    )


def _distance(family: _Family, parameters: tuple[float, ...], values: Floats) -> float:
    below = family.share_below(np.sort(values), *parameters)
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))


def _p_value(family: _Family, values: Floats) -> float:
    judged = _drawn(values, MOST_JUDGED)
    parameters = family.fit(judged)
    observed = _distance(family, parameters, judged)
    rng = np.random.default_rng(0)
    as_far = 0
    for _ in range(RESAMPLES):
        drawn = family.draw(rng, len(judged), *parameters)
        as_far += _distance(family, family.fit_near(drawn, parameters), drawn) >= observed
    return (as_far + 1) / (RESAMPLES + 1)


def _drawn(values: Floats, most: int) -> Floats:
    """Return at most `most` of the values, by seed: every n-th would fall into step with what repeats."""
    return values if len(values) <= most else np.random.default_rng(0).choice(values, most, replace=False)


def _fit_lognormal(values: Floats) -> tuple[float, ...]:
    logarithms = np.log(values)
    return float(logarithms.mean()), float(max(logarithms.std(), _LEAST_SIGMA))


def _fit_gamma(values: Floats) -> tuple[float, ...]:
    shape, _, scale = stats.gamma.fit(values, floc=0)
    return float(shape), float(scale)


def _fit_weibull(values: Floats) -> tuple[float, ...]:
    shape, _, scale = stats.weibull_min.fit(values, floc=0)
    return float(shape), float(scale)


def _fit_two_lognormals(values: Floats) -> tuple[float, ...]:
    """Expectation maximisation on logarithms (Dempster, Laird and Rubin 1977), from three starts: the likeliest end."""
    groups = _grouped(values)
    borders = np.quantile(np.log(values), (0.5, 0.8, 0.95))
    ends = [_maximise(groups, (groups.mean <= border).astype(np.float64)) for border in borders]
    return _low_first(max(ends, key=lambda end: end[0])[1])


def _refine_two_lognormals(values: Floats, parameters: tuple[float, ...]) -> tuple[float, ...]:
    groups = _grouped(values)
    return _low_first(_maximise(groups, _in_first(groups, parameters)[1])[1])


def _low_first(parameters: tuple[float, ...]) -> tuple[float, ...]:
    share, low_mu, low_sigma, high_mu, high_sigma = parameters
    if low_mu <= high_mu:
        return parameters
    return 1 - share, high_mu, high_sigma, low_mu, low_sigma


@dataclass(frozen=True, slots=True)
class _Groups:
    """Neighbouring logarithms taken together."""

    mean: Floats
    variance: Floats
    share: Floats
    """Of all samples."""


def _grouped(values: Floats) -> _Groups:
    ordered = np.log(np.sort(values))
    num_groups = min(_MOST_GROUPS, len(ordered))
    starts = np.arange(num_groups) * len(ordered) // num_groups
    sizes = np.diff(starts, append=len(ordered))
    mean = np.add.reduceat(ordered, starts) / sizes
    variance = np.add.reduceat((ordered - np.repeat(mean, sizes)) ** 2, starts) / sizes
    return _Groups(mean, variance, sizes / len(ordered))


def _maximise(groups: _Groups, in_first: Floats) -> tuple[float, tuple[float, ...]]:
    """Return the mean log likelihood and (share of the first part, mu, sigma, mu, sigma).

    `in_first`: for each group the probability that it is of the first part, to start with.
    """
    parameters: tuple[float, ...] = ()
    before = now = -math.inf
    for _ in range(_EM_ROUNDS):
        weights_of_first = in_first * groups.share
        share = min(max(float(weights_of_first.sum()), 1e-6), 1 - 1e-6)
        parts = [share]
        for weights in (weights_of_first, groups.share - weights_of_first):
            total = max(float(weights.sum()), 1e-9)
            mu = float(weights @ groups.mean) / total
            sigma = math.sqrt(max(0.0, float(weights @ (groups.variance + (groups.mean - mu) ** 2))) / total)
            parts += [mu, max(sigma, _LEAST_SIGMA)]
        parameters = tuple(parts)
        now, in_first = _in_first(groups, parameters)
        if now - before < _EM_TOLERANCE:
            break
        before = now
    return now, parameters


def _in_first(groups: _Groups, parameters: tuple[float, ...]) -> tuple[float, Floats]:
    """Return the mean log likelihood, and for each group the probability that it is of the first part."""
    share, mu, sigma, mu_2, sigma_2 = parameters
    first = math.log(share) + _normal_log_density(groups.mean, mu, sigma)
    second = math.log(1 - share) + _normal_log_density(groups.mean, mu_2, sigma_2)
    both = np.logaddexp(first, second)
    return float(groups.share @ both), np.exp(first - both)


def _normal_log_density(values: Floats, mu: float, sigma: float) -> Floats:
    density: Floats = -0.5 * ((values - mu) / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
    return density


def _two_log_density(
    values: Floats, share: float, mu: float, sigma: float, mu2: float, sigma2: float
) -> Floats:
    logarithms = np.log(values)
    first = math.log(share) + _normal_log_density(logarithms, mu, sigma)
    second = math.log(1 - share) + _normal_log_density(logarithms, mu2, sigma2)
    return np.asarray(np.logaddexp(first, second) - logarithms)


def _two_share_below(
    values: Floats, share: float, mu: float, sigma: float, mu2: float, sigma2: float
) -> Floats:
    logarithms = np.log(values)
    below = share * stats.norm.cdf(logarithms, mu, sigma) + (1 - share) * stats.norm.cdf(
        logarithms, mu2, sigma2
    )
    return np.asarray(below)


def _two_draw(
    rng: np.random.Generator, size: int, share: float, mu: float, sigma: float, mu2: float, sigma2: float
) -> Floats:
    first = rng.random(size) < share
    return np.where(first, rng.lognormal(mu, sigma, size), rng.lognormal(mu2, sigma2, size))


FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        "lognormal": _Family(
            ("mu", "sigma"),
            _fit_lognormal,
            lambda x, mu, sigma: _normal_log_density(np.log(x), mu, sigma) - np.log(x),
            lambda x, mu, sigma: stats.norm.cdf(np.log(x), mu, sigma),
            lambda rng, size, mu, sigma: rng.lognormal(mu, sigma, size),
        ),
        "gamma": _Family(
            ("shape", "scale"),
            _fit_gamma,
            lambda x, shape, scale: stats.gamma.logpdf(x, shape, scale=scale),
            lambda x, shape, scale: stats.gamma.cdf(x, shape, scale=scale),
            lambda rng, size, shape, scale: rng.gamma(shape, scale, size),
        ),
        "weibull": _Family(
            ("shape", "scale"),
            _fit_weibull,
            lambda x, shape, scale: stats.weibull_min.logpdf(x, shape, scale=scale),
            lambda x, shape, scale: stats.weibull_min.cdf(x, shape, scale=scale),
            lambda rng, size, shape, scale: scale * rng.weibull(shape, size),
        ),
        "two lognormals": _Family(
            ("share", "mu", "sigma", "mu_2", "sigma_2"),
            _fit_two_lognormals,
            _two_log_density,
            _two_share_below,
            _two_draw,
            _refine_two_lognormals,
        ),
    }
)
