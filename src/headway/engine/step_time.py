"""Predicts how long a step takes from what it carries, learnt while the engine runs: what chunks and refusals rest on.

A step reads all weights once, multiplies a row for each token, and attends from each token to what lies before it. So its
time is close to linear in four numbers (`Load`). The coefficients are fitted by recursive least squares, old ones counting
less, so that they follow what changes them: a neighbour on the processor, longer contexts. Three things keep the fit sound
where steps are much alike, as they are for minutes:

- Steps with prompts and steps without fade apart: an hour of streams teaches nothing of prompts, and unlearns nothing.
- A weak prior (ridge regression) decides what the steps do not: that their time is mostly the tokens'.
- No coefficient is negative (least squares by active set, Lawson and Hanson 1974): nothing makes a step shorter.

Errors count relative to the step, so that long steps do not drown short ones. It knows no clock: durations are brought.
`step_cost` asks something narrower, what one more row costs a step of few.
"""

from typing import NamedTuple

FADING = 0.95
"""What a step counts after the next of its kind. With 0.98 a machine half as fast was still a fifth off after 200 steps."""
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
_RIDGE = (1e-2, 1e-4, 1e-2, 1e-2, 1e-2)
"""Weight of 0 for each coefficient, in steps; least for the prompt's tokens, so that what is not known goes to them."""
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

    __slots__ = ("_coefficients", "_kinds", "_max_chunk", "_unit_ns", "error")

    def __init__(self) -> None:
        self._unit_ns = 0.0
        self._coefficients = [0.0] * _SIZE
        self._kinds = (_Sums(), _Sums())  # of steps without and with prompts
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
        return self._coefficients[1] * _SCALES[1] * self._unit_ns

    @property
    def per_attended_ns(self) -> float:
        """What it adds that a prompt token attends to a cached one."""
        return self._coefficients[4] * _SCALES[4] * self._unit_ns

    def of(self, load: Load) -> float:
        """Return the predicted duration in ns; 0 while nothing is known."""
        return self._unit_ns * sum(c * n for c, n in zip(self._coefficients, _numbers(load), strict=True))

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
        self._kinds[load.prompt > 0].add([number * weight for number in _numbers(load)])
        self._coefficients = self._fit()

    def _fit(self) -> list[float]:
        """Return the coefficients, none negative, that fit both kinds' steps."""
        first, second = self._kinds
        squares = [
            [a + b for a, b in zip(*rows, strict=True)]
            for rows in zip(first.squares, second.squares, strict=True)
        ]
        values = [a + b for a, b in zip(first.values, second.values, strict=True)]
        for i in range(_SIZE):
            squares[i][i] += _RIDGE[i]
        free = list(range(_SIZE))
        while True:
            solved = _solve([[squares[i][j] for j in free] for i in free], [values[i] for i in free])
            least = min(range(len(free)), key=solved.__getitem__)
            if solved[least] >= 0 or len(free) == 1:
                break
            del free[least]
        coefficients = [0.0] * _SIZE
        for index, value in zip(free, solved, strict=True):
            coefficients[index] = max(0.0, value)
        return coefficients


class _Sums:
    """What least squares need of one kind of steps: of each pair of numbers the products, and each number's, faded."""

    __slots__ = ("squares", "values")

    def __init__(self) -> None:
        self.squares = [[0.0] * _SIZE for _ in range(_SIZE)]
        self.values = [0.0] * _SIZE

    def add(self, numbers: list[float]) -> None:
        """A step whose `numbers`, each times its coefficient, should add up to 1."""
        for i, number in enumerate(numbers):
            row = self.squares[i]
            self.values[i] = FADING * self.values[i] + number
            for j, other in enumerate(numbers):
                row[j] = FADING * row[j] + number * other


def _solve(matrix: list[list[float]], values: list[float]) -> list[float]:
    """Return the solution of a symmetric positive definite system, by elimination."""
    size = len(values)
    for i in range(size):
        pivot = matrix[i]
        for k in range(i + 1, size):
            row = matrix[k]
            factor = row[i] / pivot[i]
            if factor:
                for j in range(i + 1, size):
                    row[j] -= factor * pivot[j]
                values[k] -= factor * values[i]
    for i in reversed(range(size)):
        row = matrix[i]
        values[i] = (values[i] - sum(row[j] * values[j] for j in range(i + 1, size))) / row[i]
    return values


def _numbers(load: Load) -> tuple[float, ...]:
    return (
        1.0,
        load.prompt * _SCALES[1],
        load.decode * _SCALES[2],
        load.context * _SCALES[3],
        load.attended * _SCALES[4],
    )
