"""How long a step takes for the rows it carries, learnt while it runs.

A step reads every weight once, whatever it carries, and computes for each row: a line, `fixed + per_row * rows`, fits within
a tenth from 1 to 32 rows of SmolLM2 (docs/log.md). It is fitted by least squares over the last steps, older ones counting
less; towards a guess where all steps had the same number of rows, which tells nothing of the slope. So a slope that a
disturbance made too steep is forgotten, not believed for ever. It knows no clock: durations are brought.
"""

from typing import NamedTuple

FORGETTING = 0.98
"""What a step counts after the next: half after 34 steps, less than a second of streaming."""
GUESSED_SLOPE = 0.1
"""Time of a further row, in steps of one row: measured 0.19 for SmolLM2 (int8, 2 cores), less for larger models."""
GUESS_WEIGHT = 4.0
"""What the guess counts: as much as a step or two whose rows differ from the mean by two."""
MAX_SURPRISE = 2.0
"""A step that takes longer than this times the expected counts as this: a neighbour took the processor."""


class StepCost(NamedTuple):
    """Duration of a step, in any unit, is `fixed + per_row * rows`."""

    fixed: float = 1.0 - GUESSED_SLOPE
    per_row: float = GUESSED_SLOPE

    def of(self, num_rows: int) -> float:
        """Return the duration of a step of `num_rows`."""
        return self.fixed + self.per_row * num_rows


class CostModel:
    """Owns the running sums of one engine's decode steps; `cost` is what they say now."""

    __slots__ = ("_ns", "_rows", "_rows_ns", "_square", "_weight", "cost")

    def __init__(self) -> None:
        self.cost = StepCost()
        self._weight = self._rows = self._square = self._ns = self._rows_ns = 0.0

    def observe(self, num_rows: int, duration_ns: int) -> None:
        """A step of `num_rows`, none of them of a prompt, took `duration_ns`; not above 0 = there is no clock."""
        if duration_ns <= 0:
            return
        ns = float(duration_ns)
        if self._weight:
            ns = min(ns, MAX_SURPRISE * self.cost.of(num_rows))
        self._weight = FORGETTING * self._weight + 1
        self._rows = FORGETTING * self._rows + num_rows
        self._square = FORGETTING * self._square + num_rows * num_rows
        self._ns = FORGETTING * self._ns + ns
        self._rows_ns = FORGETTING * self._rows_ns + num_rows * ns
        self.cost = self._fit()

    def _fit(self) -> StepCost:
        rows, mean_ns = self._rows / self._weight, self._ns / self._weight
        variance = max(0.0, self._square - self._weight * rows * rows)
        covariance = self._rows_ns - self._weight * rows * mean_ns
        guess = GUESSED_SLOPE * mean_ns / (1 + GUESSED_SLOPE * (rows - 1))
        slope = (covariance + GUESS_WEIGHT * guess) / (variance + GUESS_WEIGHT)
        slope = min(max(slope, 0.0), mean_ns / rows)  # neither part is negative
        return StepCost(mean_ns - slope * rows, slope)
