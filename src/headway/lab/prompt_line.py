"""TTFT as a line in prompt tokens: what a request costs anyway, and what 1,000 tokens add. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.clock import NS_PER_MS
from headway.lab.exchange import Exchange
from headway.lab.latency import ttft_ns
from headway.lab.robust_line import robust_line

LEAST_SPREAD = 256
"""Tokens between the shortest and the longest twentieth of a run's prompts: a slope for 1,000 that a dozen tokens told would
be the effect of something else.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLine:
    """The line through (prompt tokens, milliseconds)."""

    base_ms: float
    """At no tokens at all."""
    ms_per_1k: float
    interval: tuple[float, float]
    """Of `ms_per_1k`, at a confidence of 95 %."""
    n: int


def prompt_line(exchanges: Sequence[Exchange]) -> PromptLine | None:
    """Return the line of TTFT in the prompt tokens that were computed, of successes whose usage tells them.

    None where these prompts are nearly equally long.
    """
    tokens: list[int] = []
    times: list[float] = []
    for exchange in exchanges:
        usage, ttft = exchange.answer.usage, ttft_ns(exchange)
        if exchange.ok and usage and usage.prompt_tokens is not None and ttft is not None:
            tokens.append(max(0, usage.prompt_tokens - (usage.cached_tokens or 0)))
            times.append(ttft / NS_PER_MS)
    if not tokens or np.subtract(*np.quantile(tokens, (0.95, 0.05))) < LEAST_SPREAD:
        return None
    return fit_prompt_line(tokens, times)


def fit_prompt_line(prompt_tokens: Sequence[int], ttft_ms: Sequence[float]) -> PromptLine | None:
    """Return the line through the points; tokens from the prefix cache are no prompt tokens here: leave them out.

    None with too few samples, or if all prompts are equally long. Raises ValueError for unequal numbers or infinite times.
    """
    line = robust_line(prompt_tokens, ttft_ms)
    if line is None:
        return None
    return PromptLine(
        base_ms=line.base,
        ms_per_1k=1e3 * line.slope,
        interval=(1e3 * line.interval[0], 1e3 * line.interval[1]),
        n=line.n,
    )
