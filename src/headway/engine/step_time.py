"""Predicts how long a step takes from what it carries, learnt while the engine runs: what chunks and refusals rest on.

A step reads all weights once, multiplies a row for each token, and attends from each token to what lies before it. So its
time is close to linear in four numbers (`Load`), and recursive least squares follow the coefficients through what changes
them: another model, a neighbour on the processor, longer contexts. Old steps are forgotten only in the direction of new
ones (directional forgetting, Kulhavy and Karny 1984): an hour of streams without prompts teaches nothing of prompts, and
must not unlearn it either. Errors count relative to the step, so that long steps do not drown short ones.

It knows no clock: durations are brought. `step_cost` asks something narrower, what one more row costs a step of few.
"""

from typing import NamedTuple

FORGETTING = 0.9
"""Of what a step repeats: a machine that becomes half as fast is followed within 50 mixed steps, 0.98 takes 500."""
MAX_SURPRISE = 2.0
"""A step that takes longer than this times the expected counts as this: a neighbour took the processor."""
ERROR_FADING = 0.95
"""Of the mean error: half after 14 steps."""
FIRST_CHUNK = 256
"""Prompt tokens of the first step ever."""
MAX_GROWTH = 2
"""A chunk is at most so many times the largest one that was timed: no far extrapolation."""

_SCALES = (1.0, 1 / 64, 1 / 16, 1 / 16_384, 1 / (64 * 2048))
"""Makes the numbers of a common step about 1."""
_PRIOR = (1e2, 1e4, 1e2, 1e2, 1e2)
"""Variances before the first step, relative to its time: prompt tokens are what a step's time is most likely made of."""
_SIZE = 5


class Load(NamedTuple):
    """What a step carries.

    prompt    prompt tokens
    decode    rows of decoding sequences, drafts included
    context   cached tokens that decoding sequences attend to, summed over their rows
    attended  for prompt tokens, how many cached tokens each attends to, summed: chunk x context
    """

    prompt: int
    decode: int
    context: int
    attended: int


class StepTime:
    """Owns the estimate of one engine's steps.

    error   mean relative error of the last predictions, 0 until there were some
    """

    __slots__ = ("_coefficients", "_covariance", "_max_chunk", "_unit_ns", "error")

    def __init__(self) -> None:
        self._unit_ns = 0.0
        self._coefficients = [0.0] * _SIZE
        self._covariance = [[_PRIOR[i] if i == j else 0.0 for j in range(_SIZE)] for i in range(_SIZE)]
        self._max_chunk = 0
        self.error = 0.0

    @property
    def is_known(self) -> bool:
        """Whether a step with a prompt was timed."""
        return self._max_chunk > 0

    @property
    def max_chunk(self) -> int:
        """Most prompt tokens that a step should carry, so that the prediction is not far from what was seen."""
        return MAX_GROWTH * self._max_chunk if self._max_chunk else FIRST_CHUNK

    @property
    def per_prompt_token_ns(self) -> float:
        """What a prompt token adds to a step, without what it attends to."""
        return max(0.0, self._coefficients[1]) * _SCALES[1] * self._unit_ns

    @property
    def per_attended_ns(self) -> float:
        """What it adds that a prompt token attends to a cached one."""
        return max(0.0, self._coefficients[4]) * _SCALES[4] * self._unit_ns

    def of(self, load: Load) -> float:
        """Return the predicted duration in ns; 0 while nothing is known."""
        return self._unit_ns * sum(
            max(0.0, c) * n for c, n in zip(self._coefficients, _numbers(load), strict=True)
        )

    def observe(self, load: Load, duration_ns: int) -> None:
        """A step took `duration_ns`; not above 0 = there is no clock."""
        if duration_ns <= 0:
            return
        predicted = self.of(load)
        duration = float(duration_ns)
        if self._unit_ns:
            if load.prompt <= self.max_chunk and (self.is_known or not load.prompt):
                self.error += (1 - ERROR_FADING) * (abs(duration - predicted) / duration - self.error)
                duration = min(duration, MAX_SURPRISE * predicted) if predicted else duration
        else:
            self._unit_ns = duration
        self._max_chunk = max(self._max_chunk, load.prompt)
        weight = self._unit_ns / duration  # relative errors: every step counts as one of duration 1
        self._learn([number * weight for number in _numbers(load)])

    def _learn(self, numbers: list[float]) -> None:
        """One step of recursive least squares: `numbers` should give 1."""
        covariance = self._covariance
        gain = [sum(row[j] * numbers[j] for j in range(_SIZE)) for row in covariance]
        spread = sum(numbers[j] * gain[j] for j in range(_SIZE))
        if spread <= 0.0:
            return
        miss = 1.0 - sum(c * n for c, n in zip(self._coefficients, numbers, strict=True))
        for i in range(_SIZE):
            self._coefficients[i] += gain[i] * miss / (1.0 + spread)
        kept = FORGETTING - (1.0 - FORGETTING) / spread
        if kept == 0.0:
            return
        divisor = 1.0 / kept + spread
        for i in range(_SIZE):
            for j in range(_SIZE):
                covariance[i][j] -= gain[i] * gain[j] / divisor


def _numbers(load: Load) -> tuple[float, ...]:
    return (
        1.0,
        load.prompt * _SCALES[1],
        load.decode * _SCALES[2],
        load.context * _SCALES[3],
        load.attended * _SCALES[4],
    )
