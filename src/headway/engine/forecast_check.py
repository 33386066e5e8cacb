"""Holds predicted waits to what came: the factor by which they have to be longer, so that most are kept.

What a prediction cannot know (who comes later and goes first, blocks that run short, a neighbour on the processor) makes
waits longer than predicted, by much or little as the load has it. So the ratio that `KEPT` of the requests stay below is
followed, by stochastic approximation of the quantile (Robbins and Monro 1951), and predicted waits are multiplied by it.
What a prompt itself takes is known well and stays as it is: a factor learnt from short prompts would keep long ones out.
"""

KEPT = 0.95
GAIN = 0.1
"""A late one lengthens predictions by a tenth; nineteen in time shorten them by as much."""
FIRST, LEAST, MOST = 1.5, 1.0, 4.0
"""Loads that fill a machine settle between 1.2 and 2.5."""


class ForecastCheck:
    """Owns the factor of one engine."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = FIRST

    def observe(self, predicted_ns: float, taken_ns: float) -> None:
        """A request waited `taken_ns`; `predicted_ns`, without the factor, was not 0."""
        late = taken_ns > predicted_ns * self.factor
        self.factor *= 1 + GAIN * (KEPT if late else KEPT - 1)
        self.factor = min(max(self.factor, LEAST), MOST)
