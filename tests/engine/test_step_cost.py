"""The line through steps' durations: learnt, forgotten, and guessed where nothing tells."""

import pytest

from headway.engine.step_cost import CostModel, StepCost


def fed(*steps: tuple[int, int]) -> StepCost:
    model = CostModel()
    for num_rows, duration_ns in steps:
        model.observe(num_rows, duration_ns)
    return model.cost


def test_before_the_first_step_a_row_costs_a_tenth() -> None:
    assert CostModel().cost.of(1) == pytest.approx(1)
    assert CostModel().cost.of(2) == pytest.approx(1.1)


def test_the_line_is_learnt() -> None:
    cost = fed(*[(1 + index % 9, 5_000_000 + 1_000_000 * (index % 9)) for index in range(200)])
    assert cost.of(1) == pytest.approx(5e6, rel=0.05)
    assert cost.of(9) == pytest.approx(13e6, rel=0.05)


def test_steps_of_one_size_leave_the_slope_guessed() -> None:
    cost = fed(*[(4, 8_000_000)] * 50)
    assert cost.of(4) == pytest.approx(8e6)
    assert cost.of(5) / cost.of(4) == pytest.approx(1.4 / 1.3)


def test_a_disturbance_is_forgotten() -> None:
    calm = [(1, 5_000_000), (5, 7_000_000)] * 60
    disturbed = fed(*calm, *[(5, 40_000_000)] * 3)
    assert disturbed.of(5) < 3 * 7e6
    assert fed(*calm, *[(5, 40_000_000)] * 3, *calm).of(5) == pytest.approx(7e6, rel=0.1)


def test_no_part_is_negative() -> None:
    falling = fed(*[(1, 9_000_000), (9, 3_000_000)] * 30)
    steep = fed(*[(1, 1_000), (2, 9_000_000)] * 30)
    for cost in (falling, steep):
        assert cost.fixed >= 0
        assert cost.per_row >= 0


def test_without_a_clock_nothing_is_learnt() -> None:
    assert fed((1, 0), (9, 0)) == StepCost()
