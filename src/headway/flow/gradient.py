"""How many calls a remote engine takes at once, found from how long their first tokens take. It knows no engine and
no clock.

The gradient of Netflix's concurrency-limits (Gradient and Gradient2, github.com/Netflix/concurrency-limits): the
limit is multiplied by (tolerance × time without load ÷ time now), and √limit added, so that there is always a small
queue to learn from. Two things differ:

- The time without load is the least of the last samples, as in BBR (Cardwell and others, ACM Queue 14/5, 2016), and
every so often
  the limit is halved for a moment to see it again. Gradient2's long average follows the load: in a queue that never
  empties its limit creeps up for ever (tests/flow/test_gradient.py has the queue).
- It is kept by the prompt's size, in powers of two: a first token takes as long as its prompt.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

TOLERANCE: Final = 1.5
"""Gradient2's: what a first token may take compared with an idle engine before anything is concluded."""
SMOOTHING: Final = 0.2
"""Gradient2's: how much one sample moves the limit."""
LEAST_GRADIENT: Final = 0.5
"""One sample, however slow, at most halves what it moves to."""
SAMPLES_PER_PROBE: Final = 500

Baselines = Mapping[int, int]
"""Least nanoseconds to the first token, by size of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A limit as a value.

    limit                 calls at once, `min_limit` to `max_limit`
    recent, before        least times since the last probe, and between the two before
    num_samples           since the last probe
    """

    limit: float = 8.0
    min_limit: int = 1
    max_limit: int = 1024
    recent: Baselines = field(default_factory=dict)
    before: Baselines = field(default_factory=dict)
    num_samples: int = 0

    @property
    def num_places(self) -> int:
        """Whole calls at once."""
        return max(self.min_limit, int(self.limit))


def step(state: Gradient, ttft_ns: int, num_prompt_tokens: int, num_in_flight: int) -> Gradient:
    """Return the limit after one call's first token.

    `num_in_flight` is how many ran when it was sent: while fewer than half of the limit do, nothing is learnt of the limit.
    """
    size = max(1, num_prompt_tokens).bit_length()
    ttft_ns = max(1, ttft_ns)
    recent = {**state.recent, size: min(ttft_ns, state.recent.get(size, ttft_ns))}
    if state.num_samples + 1 >= SAMPLES_PER_PROBE:
        halved = max(float(state.min_limit), state.limit / 2)
        return replace(state, limit=halved, recent={}, before=recent, num_samples=0)
    state = replace(state, recent=recent, num_samples=state.num_samples + 1)
    if num_in_flight < state.limit / 2:
        return state
    baseline_ns = min(recent[size], state.before.get(size, ttft_ns))
    gradient = max(LEAST_GRADIENT, min(1.0, TOLERANCE * baseline_ns / ttft_ns))
    aim = state.limit * gradient + math.sqrt(state.limit)
    limit = state.limit * (1 - SMOOTHING) + aim * SMOOTHING
    return replace(state, limit=min(float(state.max_limit), max(float(state.min_limit), limit)))


def failed(state: Gradient) -> Gradient:
    """Return the limit after the engine refused a call for its own sake (503, or no connection): it was too high."""
    return replace(state, limit=max(float(state.min_limit), state.limit * (1 - SMOOTHING)))
