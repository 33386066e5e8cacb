"""A verdict says no more than the rounds do, and the same whichever side is called A."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.comparison import compare

figures = st.lists(st.tuples(*[st.floats(min_value=0.1, max_value=1e4)] * 2), min_size=5, max_size=12)


def test_a_clear_difference_is_told_with_its_interval() -> None:
    found = compare([100, 102, 98, 101, 99], [81, 80, 79, 82, 78], least_effect=0.05, names=("old", "new"))
    assert found.judgement == "faster"
    assert found.ratio == pytest.approx(0.8, rel=0.01)
    assert found.interval is not None
    assert found.interval[0] < 0.8 < found.interval[1] < 0.85
    assert found.sentence.startswith(
        "new is faster than old: its figure is 0.8 times old's (95 % interval 0.7"
    )


def test_a_difference_that_does_not_matter_is_equal() -> None:
    found = compare([100, 100.2, 99.8, 100, 100.1], [101, 101, 101, 101.1, 100.9], least_effect=0.05)
    assert found.judgement == "equal"
    assert "as fast as A to within 5%" in found.sentence


def test_noise_is_not_called_a_difference() -> None:
    found = compare([100, 150, 80, 120, 95], [110, 100, 120, 90, 140], least_effect=0.05)
    assert found.judgement == "unknown"
    assert "cannot be told" in found.sentence


def test_two_like_sides_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(0)
    judged = [compare(*np.exp(rng.normal(4, 0.3, (2, 6))), least_effect=0.05).judgement for _ in range(500)]
    assert (
        sum(judgement in ("faster", "slower") for judgement in judged) <= 38
    )  # 5 %, and two and a half deviations


@given(figures)
def test_exchanging_the_sides_exchanges_the_verdict(rounds: list[tuple[float, float]]) -> None:
    a, b = zip(*rounds, strict=True)
    there, back = compare(a, b, least_effect=0.1), compare(b, a, least_effect=0.1)
    opposite = {"faster": "slower", "slower": "faster"}
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio * back.ratio == pytest.approx(1)
    if there.interval and min(abs(end - 1) for end in there.interval) > 1e-9:
        assert back.judgement == opposite.get(there.judgement, there.judgement)


def test_a_side_that_failed_is_not_compared() -> None:
    found = compare([1, 2, 3, 4, 5], [1, math.inf, math.inf, 4, 5], least_effect=0.05)
    assert (found.judgement, found.ratio, found.interval) == ("failed", None, None)
    assert found.sentence == "Not comparable: B in 2 of 5 rounds failed too often to have a figure."


@pytest.mark.parametrize(
    ("a", "b", "least_effect", "message"),
    [
        ([1] * 5, [1] * 6, 0.05, "5 rounds of A, but 6 of B"),
        ([1] * 4, [1] * 4, 0.05, "at least 5"),
        ([1] * 5, [1] * 5, 0.0, "between 0 and 1"),
        ([1] * 5, [1, 1, 0, 1, 1], 0.05, "not positive"),
        ([1] * 5, [1, 1, math.nan, 1, 1], 0.05, "not positive"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    a: list[float], b: list[float], least_effect: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compare(a, b, least_effect=least_effect)
