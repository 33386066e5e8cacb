from random import Random

import pytest

from headway.engine.forecast_check import KEPT, MOST, ForecastCheck


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_most_come_within_the_predicted_time_times_the_factor(spread: float) -> None:
    check, random = ForecastCheck(), Random(1)
    kept = []
    for _ in range(4000):
        taken = random.lognormvariate(0.4, spread)
        kept.append(taken <= check.factor)
        check.observe(1e9, int(taken * 1e9))
    assert sum(kept[500:]) / 3500 == pytest.approx(KEPT, abs=0.02)


def test_predictions_that_are_always_kept_are_not_shortened_and_hopeless_ones_not_lengthened_for_ever() -> (
    None
):
    check = ForecastCheck()
    for _ in range(1000):
        check.observe(1e9, 1000)
    assert check.factor == 1
    for _ in range(1000):
        check.observe(1e6, 10**12)
    assert check.factor == MOST
