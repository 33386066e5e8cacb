"""Random variates that are the same bits for the same seed on every machine and Python version.

Of `random.Random` only `random()` is used: its sequence is promised to stay, the other methods' algorithms are not. The
logarithm and the exponential of the C library differ in the last bit between libraries, so ours use only operations whose
results IEEE 754 fixes: + - * /, square root, and taking a number apart (`frexp`, `ldexp`). It knows no arrivals.
"""

import math
from random import Random

LN_2 = 0.6931471805599453
_ROOT_OF_HALF = 0.7071067811865476
"""Mantissas lie between √½ and √2, where the series converges fastest."""
_LN_TERMS = tuple(1 / k for k in range(21, 0, -2))
"""ln m = 2 (z + z³/3 + z⁵/5 + …) with z = (m - 1)/(m + 1), |z| < 0.172: the next term is below 3e-18 of the first."""
_EXP_TERMS = tuple(1 / math.factorial(k) for k in range(14, -1, -1))
"""Taylor's series for |x| < 0.347: the next term is below 1e-18."""
_EXP_UNDERFLOWS = -700.0


def ln(x: float) -> float:
    """Return the natural logarithm of a positive normal number, to a few units in the last place."""
    mantissa, exponent = math.frexp(x)
    if mantissa < _ROOT_OF_HALF:
        mantissa, exponent = 2 * mantissa, exponent - 1
    z = (mantissa - 1) / (mantissa + 1)
    square, total = z * z, 0.0
    for term in _LN_TERMS:
        total = total * square + term
    return 2 * z * total + exponent * LN_2


def exp(x: float) -> float:
    """Return e to the power of `x` ≤ 0, to about |x| units in the last place; 0.0 below -700."""
    if x < _EXP_UNDERFLOWS:
        return 0.0
    halvings = round(x / LN_2)
    rest, total = x - halvings * LN_2, 0.0
    for term in _EXP_TERMS:
        total = total * rest + term
    return math.ldexp(total, halvings)


def exponential(random: Random) -> float:
    """Draw from the exponential distribution with mean 1."""
    return -ln(1.0 - random.random())  # 1 - [0, 1) is exact and never 0


def normal(random: Random) -> float:
    """Draw from the standard normal distribution: Marsaglia's polar method (1964); the second of its pair is dropped."""
    while True:
        x, y = 2 * random.random() - 1, 2 * random.random() - 1
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2 * ln(square) / square)


def gamma(random: Random, shape: float) -> float:
    """Draw from the gamma distribution with `shape` > 0 and scale 1 (mean `shape`, deviation √`shape`).

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); a shape below 1 by its section 6.
    """
    if shape < 1.0:
        return gamma(random, shape + 1.0) * exp(-exponential(random) / shape)
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(random)
        cube = (1 + c * x) * (1 + c * x) * (1 + c * x)
        if cube <= 0.0:
            continue
        chance = 1.0 - random.random()
        if ln(chance) < x * x / 2 + d - d * cube + d * ln(cube):
            return d * cube
