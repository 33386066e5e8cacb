"""The numbers the ladder goes by, and how many steps they allow; what they do is said in `ladder`."""

import math
from dataclasses import dataclass

from headway.core.errors import ConfigError

MAX_CLIMB = 1_000
"""Rungs from the start to the target: more, and `step_rate` is surely a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRules:
    """Rates in requests per second, limits on the P95 in milliseconds; the defaults of cut, step, floor and limits are L5's.

    `high_ms` is the SLO's limit on the P95; `resolution` is the width of the last bracket over its upper end; `holds`
    and `repeats` are the further measurements of a rate between the limits, or of the broken floor, and of the edge.
    """

    start_rate: float = 10.0
    target_rate: float = 500.0
    floor_rate: float = 10.0
    high_ms: float = 200.0
    low_ms: float = 120.0
    cut: float = 0.7
    step_rate: float = 50.0
    resolution: float = 0.05
    holds: int = 1
    repeats: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.floor_rate <= self.start_rate <= self.target_rate < math.inf:
            raise ConfigError(
                "The ladder needs 0 < floor_rate ≤ start_rate ≤ target_rate, as in "
                "ladder:floor_rate=1,start_rate=5,target_rate=50."
            )
        if not 0 < self.low_ms <= self.high_ms < math.inf:
            raise ConfigError("The ladder needs 0 < low_ms ≤ high_ms, as in ladder:low_ms=120,high_ms=200.")
        if not 0.1 <= self.cut <= 0.95:
            raise ConfigError("The ladder's cut must be from 0.1 to 0.95, as in ladder:cut=0.7.")
        if not 0.001 <= self.resolution <= 0.5:
            raise ConfigError(
                "The ladder's resolution must be from 0.001 to 0.5, as in ladder:resolution=0.05."
            )
        if (
            not (self.target_rate - self.start_rate) / MAX_CLIMB <= self.step_rate < math.inf
            or not self.step_rate
        ):
            raise ConfigError(
                f"The ladder's step_rate must reach the target in {MAX_CLIMB} steps, as in ladder:step_rate=50."
            )
        if not 0 <= self.holds <= 100 or not 1 <= self.repeats <= 100:
            raise ConfigError(
                "The ladder takes 0 to 100 holds and 1 to 100 repeats, as in ladder:holds=1,repeats=2."
            )

    @property
    def max_steps(self) -> int:
        """Measurements after which the ladder has ended whatever was measured."""
        rungs = math.ceil((self.target_rate - self.start_rate) / self.step_rate) + 1
        cuts = math.ceil(math.log(self.target_rate / self.floor_rate) / -math.log(self.cut)) + 1
        halvings = math.ceil(math.log2(self.target_rate / (self.resolution * self.floor_rate))) + 1
        retreats = math.ceil(-math.log2(self.resolution)) + 1
        return (rungs + cuts) * (self.holds + 1) + halvings + (retreats + 1) * (self.repeats + 1)
