"""Rotary positions: from a base and a method of scaling to the frequencies that queries and keys rotate by.

It knows no file format. Every step is computed in double precision and rounded to float32 where `transformers` holds
float32, so that frequencies equal its own but for the last bits (its float32 power is not always the nearest one).
Sources: rotary positions (arXiv 2104.09864), YaRN (arXiv 2309.00071), LongRoPE (arXiv 2402.13753), Llama 3.1 (its
reference code, `apply_scaling`); what each name in a configuration means: `transformers`, modeling_rope_utils.py.
"""

import math
import struct
from collections.abc import Sequence

_PACK_FLOAT32 = struct.Struct("<f")


def float32(value: float) -> float:
    """Round to the nearest float32; raises OverflowError beyond its range."""
    return float(_PACK_FLOAT32.unpack(_PACK_FLOAT32.pack(value))[0])


def plain_frequencies(dim: int, theta: float) -> tuple[float, ...]:
    """Return theta^(-2i/dim), (dim/2,) radians per position."""
    return tuple(float32(1 / wavelength) for wavelength in _wavelengths(dim, theta))


def linear_frequencies(dim: int, theta: float, factor: float) -> tuple[float, ...]:
    """Return the plain frequencies divided by `factor`, which is what positions divided by it come to."""
    return tuple(float32(frequency / factor) for frequency in plain_frequencies(dim, theta))


def llama3_frequencies(
    dim: int,
    theta: float,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> tuple[float, ...]:
    """Return Llama 3.1's frequencies: slow ones divided by `factor`, fast ones kept, a smooth passage in between."""
    slow_wavelength = original_context / low_freq_factor
    fast_wavelength = original_context / high_freq_factor

    def scaled(frequency: float) -> float:
        wavelength = float32(float32(2 * math.pi) / frequency)
        if wavelength < fast_wavelength:
            return frequency
        if wavelength > slow_wavelength:
            return float32(frequency / factor)
        kept = float32(
            float32(float32(original_context / wavelength) - low_freq_factor)
            / (high_freq_factor - low_freq_factor)
        )
        divided = float32(float32((1 - kept) * frequency) / factor)
        return float32(divided + float32(kept * frequency))

    return tuple(map(scaled, plain_frequencies(dim, theta)))


def yarn_frequencies(
    dim: int,
    theta: float,
    *,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> tuple[float, ...]:
    """Return YaRN's frequencies: those that turn more than `beta_fast` times in the original context are kept, those
    that turn less than `beta_slow` times divided by `factor`, with a linear ramp over the dimensions in between
    (rounded outwards to whole ones if `truncate`). The defaults are the paper's.
    """

    def dimension(num_turns: float) -> float:
        return dim * math.log(original_context / (num_turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(beta_fast), dimension(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # both references avoid the division by zero so

    def scaled(index: int, wavelength: float) -> float:
        ramp = min(max(float32(float32(index - float32(low)) / float32(high - low)), 0.0), 1.0)
        kept = float32(1 - ramp)
        divided = float32(1 / float32(factor * wavelength))
        return float32(float32(divided * float32(1 - kept)) + float32(float32(1 / wavelength) * kept))

    return tuple(scaled(index, wavelength) for index, wavelength in enumerate(_wavelengths(dim, theta)))


def yarn_scale(factor: float, mscale: float = 1.0) -> float:
    """Return what cosines and sines are multiplied by under YaRN (its equation 22; `mscale` is DeepSeek's addition)."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def longrope_frequencies(dim: int, theta: float, factors: Sequence[float]) -> tuple[float, ...]:
    """Return the plain frequencies, each divided by its own factor; `factors` is (dim/2,)."""
    return tuple(
        float32(1 / float32(float32(factor) * wavelength))
        for factor, wavelength in zip(factors, _wavelengths(dim, theta), strict=True)
    )


def longrope_scale(factor: float, original_context: int) -> float:
    """Return what cosines and sines are multiplied by under LongRoPE, for a context `factor` times the original."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_context))


def _wavelengths(dim: int, theta: float) -> list[float]:
    """Return theta^(2i/dim), (dim/2,): positions per radian."""
    base = float32(theta)
    return [float32(base ** float32(index / dim)) for index in range(0, dim, 2)]
