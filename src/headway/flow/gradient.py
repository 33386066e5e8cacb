"""How many calls a remote engine takes at once, found from how long their first tokens take. It knows no engine.

The gradient of Netflix's concurrency-limits (Gradient and Gradient2, github.com/Netflix/concurrency-limits): the limit is
multiplied by (tolerance × time without load ÷ time now), and √limit is added, so that there is always a small queue to learn
from. Four things differ:

- It moves once in a window, by samples of calls that were sent after it moved last. Moved by each sample it swings from 1 to
  far too much, as what a call tells is as old as the call.
- The time without load is the least of the last windows, as in BBR (Cardwell and others, ACM Queue 14/5, 2016), and now and
  then half of the places stay free for a window to see it again. Gradient2's long average follows the load instead.
- It is kept by the prompt's size, in powers of two: a first token takes as long as its prompt.
- What is soon enough for anybody is no load, whatever an idle engine takes: with more at once a batching engine takes longer
  for each and computes more of all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headway.core.clock import NS_PER_MS

TOLERANCE: Final = 1.5
"""Gradient2's: what a first token may take compared with an idle engine before anything is concluded."""
SOON_NS: Final = 160 * NS_PER_MS
"""The least that counts as the time without load; with TOLERANCE half of the 480 ms in which a first token is expected."""
SMOOTHING: Final = 0.5
"""How much one window moves the limit."""
LEAST_GRADIENT: Final = 0.5
"""One window, however slow, at most halves what it moves to."""
WINDOWS_PER_PROBE: Final = 20
FAILURE_FACTOR: Final = 0.9
"""A refusal's, of additive increase and multiplicative decrease: several calls are refused at once."""

Baselines = Mapping[int, int]
"""Least nanoseconds to the first token, by size of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A limit as a value.

    limit           calls at once, `min_limit` to `max_limit`
    recent, before  least times since the last probe began, and from the one before until then
    num_windows     since the last probe
    num_samples     of the window
    sum_ns, sum_baseline_ns   times to first tokens in the window's second half, and what they take without load
    is_probing      half of the places stay free for this window
    """

    limit: float = 8.0
    min_limit: int = 1
    max_limit: int = 1024
    recent: Baselines = field(default_factory=dict)
    before: Baselines = field(default_factory=dict)
    num_windows: int = 0
    num_samples: int = 0
    sum_ns: int = 0
    sum_baseline_ns: int = 0
    is_probing: bool = False

    @property
    def num_places(self) -> int:
        """Whole calls at once."""
        return max(self.min_limit, int(self.limit / 2 if self.is_probing else self.limit))


def step(state: Gradient, ttft_ns: int, num_prompt_tokens: int, num_in_flight: int) -> Gradient:
    """Return the limit after one call's first token.

    `num_in_flight` is how many ran when it was sent: while fewer than half of the limit do, nothing is learnt of the limit.
    """
    size, ttft_ns = max(1, num_prompt_tokens).bit_length(), max(1, ttft_ns)
    recent = {**state.recent, size: min(ttft_ns, state.recent.get(size, ttft_ns))}
    if num_in_flight < state.limit / 2 and not state.is_probing:
        return replace(state, recent=recent)
    num_samples = state.num_samples + 1
    if num_samples <= state.num_places:  # as many may have been sent before the limit moved
        return replace(state, recent=recent, num_samples=num_samples)
    baseline_ns = max(SOON_NS, min(recent[size], state.before.get(size, ttft_ns)))
    state = replace(
        state,
        recent=recent,
        num_samples=num_samples,
        sum_ns=state.sum_ns + ttft_ns,
        sum_baseline_ns=state.sum_baseline_ns + baseline_ns,
    )
    return _next_window(state) if num_samples >= 2 * state.num_places else state


def _next_window(state: Gradient) -> Gradient:
    """Move the limit by what the window told, or only end the probe."""
    limit, num_windows = state.limit, 0
    if not state.is_probing:
        gradient = max(LEAST_GRADIENT, min(1.0, TOLERANCE * state.sum_baseline_ns / state.sum_ns))
        aim = limit * gradient + math.sqrt(limit)
        limit, num_windows = limit * (1 - SMOOTHING) + aim * SMOOTHING, state.num_windows + 1
    probe = num_windows >= WINDOWS_PER_PROBE
    return replace(
        state,
        limit=_bounded(state, limit),
        recent={} if probe else state.recent,
        before=state.recent if probe else state.before,
        num_windows=num_windows,
        num_samples=0,
        sum_ns=0,
        sum_baseline_ns=0,
        is_probing=probe,
    )


def failed(state: Gradient) -> Gradient:
    """Return the limit after the engine refused a call for its own sake (503, or no connection): it was too high."""
    return replace(state, limit=_bounded(state, state.limit * FAILURE_FACTOR))


def _bounded(state: Gradient, limit: float) -> float:
    return min(float(state.max_limit), max(float(state.min_limit), limit))
