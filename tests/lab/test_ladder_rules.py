import math
from dataclasses import replace

import pytest

from headway.core.errors import ConfigError
from headway.lab.ladder_rules import LadderRules


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"floor_rate": 0}, "0 < floor_rate"),
        ({"start_rate": 5}, "floor_rate ≤ start_rate"),
        ({"target_rate": math.inf}, "start_rate ≤ target_rate"),
        ({"target_rate": math.nan}, "start_rate ≤ target_rate"),
        ({"low_ms": 300}, "low_ms ≤ high_ms"),
        ({"cut": 1}, "cut must be"),
        ({"resolution": 0}, "resolution must be"),
        ({"step_rate": 0}, "step_rate must reach"),
        ({"step_rate": 0.1}, "step_rate must reach"),
        ({"start_rate": 500, "step_rate": 0}, "step_rate must reach"),
        ({"holds": -1}, "holds"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_rules_that_cannot_end_or_mean_nothing_are_refused(changes: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(LadderRules(), **changes)  # type: ignore[arg-type]


def test_the_ladder_promises_a_bounded_number_of_steps() -> None:
    assert LadderRules().max_steps == 78
