"""TTFT as a line in prompt tokens: what a request costs anyway, and what 1,000 tokens add. A pure function."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from headway.lab.distribution import CONFIDENCE

LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLine:
    """The line through (prompt tokens, milliseconds)."""

    base_ms: float
    """At no tokens at all."""
    ms_per_1k: float
    interval: tuple[float, float]
    """Of `ms_per_1k`, at a confidence of 95 %."""
    n: int


def fit_prompt_line(prompt_tokens: Sequence[int], ttft_ms: Sequence[float]) -> PromptLine | None:
    """Return the line by Theil and Sen: medians of slopes between pairs, which a fifth of stalled requests does not move.

    Tokens from the prefix cache are no prompt tokens here: leave them out, or requests that had any. None with fewer than
    `LEAST_SAMPLES` samples, or if all prompts are equally long. Raises ValueError for unequal numbers or infinite times.
    """
    tokens, times = np.asarray(prompt_tokens, dtype=np.float64), np.asarray(ttft_ms, dtype=np.float64)
    if len(tokens) != len(times):
        raise ValueError(f"{len(tokens)} prompts, but {len(times)} times")
    if not np.isfinite(times).all():
        raise ValueError("a time is not finite")
    if len(tokens) < LEAST_SAMPLES or tokens.min() == tokens.max():
        return None
    line = stats.theilslopes(times, tokens, CONFIDENCE, method="joint")
    return PromptLine(
        base_ms=float(line.intercept),
        ms_per_1k=1e3 * float(line.slope),
        interval=(1e3 * float(line.low_slope), 1e3 * float(line.high_slope)),
        n=len(tokens),
    )
