"""A fit finds what steps really cost, whatever the machine; a calibration survives its file and nothing else does."""

import json
from array import array
from pathlib import Path

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.core.errors import ConfigError
from headway.runner.fake import FakeRunner
from headway.runner.step import Step
from headway.simulator.calibration import (
    FORMAT,
    TERMS,
    CalibratedCost,
    Calibration,
    MachineRunner,
    read_calibration,
    terms,
    write_calibration,
)
from headway.simulator.fit import Timed, fit_line, fit_steps
from headway.simulator.step_load import StepLoad, load_of
from headway.simulator.time_steps import Part, grid, others, time_cases

TRUE = {
    "constant": 4e6,
    "rows 1 to 2": 1e5,
    "rows 2 to 4": 8e5,
    "rows 4 to 8": 1e5,
    "rows 8 to 16": 6e5,
    "rows 16 to 32": 3e5,
    "rows 32 to 64": 5e5,
    "rows 64 to 128": 4e5,
    "rows over 128": 3e5,
    "drawn": 1e5,
    "context": 800.0,
    "pairs": 300.0,
    "prefix": 500.0,
    "sequences": 2e4,
}


def true_ns(load: StepLoad) -> float:
    return sum(TRUE[name] * number for name, number in zip(TERMS, terms(load), strict=True))


def fake_runner(clock: ManualClock) -> FakeRunner:
    return FakeRunner(
        num_blocks=8192,
        max_context=8192,
        clock=clock,
        cost_ns=lambda step: round(true_ns(load_of(step))),
    )


@pytest.fixture(scope="module")
def timed() -> tuple[list[Timed], list[Timed]]:
    """The whole grid, on a machine that costs exactly what `TRUE` says and computes nothing."""
    clock = ManualClock()

    class Exact(FakeRunner):
        def execute(self, step: Step):  # type: ignore[no-untyped-def]  # as FakeRunner's, without its hashes
            clock.advance(round(true_ns(load_of(step))))

        def copy_block(self, source: int, target: int) -> None:
            pass

    runner = Exact(num_blocks=8192, max_context=8192)
    cases = grid()
    found = time_cases(runner, [*cases, *others()], budget_s=0, clock_ns=clock.now_ns)
    assert None not in found
    kept = [each for each in found if each is not None]
    return kept[: len(cases)], kept[len(cases) :]


def test_the_fit_recovers_the_coefficients(timed: tuple[list[Timed], list[Timed]]) -> None:
    found, fit = fit_steps(*timed)
    assert found == pytest.approx(TRUE, rel=1e-3)
    assert fit.held_out_p90 < 1e-4


def test_the_fit_says_how_far_it_is_off_what_it_did_not_see(timed: tuple[list[Timed], list[Timed]]) -> None:
    fitted, held_out = timed
    slower = [Timed(each.load, 2 * each.duration_ns) for each in held_out]
    _, fit = fit_steps(fitted, slower)
    assert fit.held_out_median == pytest.approx(0.5, rel=1e-3)
    assert fit.fitted_median < 1e-4


def test_no_more_work_is_ever_predicted_to_take_less_time() -> None:
    draws = [Timed(StepLoad(rows, rows, rows, context=rows * 100), 1e6 / rows) for rows in range(1, 40)]
    found, _ = fit_steps(draws, draws)
    assert min(found.values()) >= 0


def test_what_a_step_carries_is_counted() -> None:
    runner_steps = FakeRunner(num_blocks=64, keep_steps=True)
    case = (Part(1, 10), Part(1, 20), Part(4, 32, draws=False))
    time_cases(runner_steps, [case], budget_s=0)
    assert runner_steps.steps is not None
    load = load_of(runner_steps.steps[-1])
    assert load == StepLoad(6, 2, 3, context=11 + 21, pairs=4 * 32 + 10, prefix=32, chunks=1)


def test_steps_that_do_not_fit_the_runner_are_left_out() -> None:
    runner = FakeRunner(num_blocks=4, max_context=40)
    cases = [(Part(1, 10),), (Part(1, 40),), (Part(1, 30), Part(1, 30), Part(1, 30))]
    timed = time_cases(runner, cases, budget_s=0)
    assert [each is not None for each in timed] == [True, False, False]


def test_a_line_of_what_cannot_be_below_zero() -> None:
    assert fit_line((1, 12), (110.0, 220.0)) == pytest.approx((100.0, 10.0))
    assert fit_line((1, 12), (220.0, 110.0))[1] == 0
    assert fit_line((1, 12), (-5.0, -5.0)) == (0, 0)
    assert fit_line((3, 3), (8.0, 10.0)) == pytest.approx((9.0, 0.0))


def calibration(**changes: object) -> Calibration:
    _, fit = fit_steps([Timed(StepLoad(1, 1, 1), 1e6)], [Timed(StepLoad(1, 1, 1), 1e6)])
    found = Calibration(
        format=FORMAT,
        headway="0",
        model="m",
        settings={"weights": "auto", "threads": None},
        runner=MachineRunner(vocab_size=512, max_context=1024, num_blocks=64, block_size=16),
        coefficients=TRUE,
        fit=fit,
        engine_ns=(1000.0, 10.0),
        serving_step_ns=(500.0, 5.0),
    )
    return msgspec.structs.replace(found, **changes)


def test_a_step_takes_what_runner_python_and_serving_take() -> None:
    step = Step(
        tokens=array("i", [1, 2]),
        positions=array("i", [9, 4]),
        sequence_starts=array("i", [0, 1, 2]),
        context_lens=array("i", [9, 4]),
        block_table=array("i", [0, 1]),
        block_table_starts=array("i", [0, 1, 2]),
        adapter_ids=array("i", [0, 0]),
        output_rows=array("i", [0, 1]),
        output_kinds=array("i", [0, 0]),
        sampling=None,
    )
    runner_ns = 4e6 + 1e5 + 2 * 1e5 + 15 * 800 + 2 * 2e4
    assert CalibratedCost(calibration()).step_ns(step) == runner_ns + 1500 + 2 * 15


def test_the_runner_may_take_longer_while_it_is_served() -> None:
    step = Step(
        tokens=array("i", [1, 2, 3, 4]),
        positions=array("i", [9, 0, 1, 2]),
        sequence_starts=array("i", [0, 1, 4]),
        context_lens=array("i", [9, 0]),
        block_table=array("i", [0, 1]),
        block_table_starts=array("i", [0, 1, 2]),
        adapter_ids=array("i", [0, 0]),
        output_rows=array("i", [0]),
        output_kinds=array("i", [0]),
        sampling=None,
    )
    alone = CalibratedCost(calibration()).step_ns(step)
    runner_ns = calibration().runner_ns(load_of(step))
    assert CalibratedCost(calibration(serving_factor=2.0)).step_ns(step) == alone + round(runner_ns) > alone


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    write_calibration(calibration(), path)
    assert read_calibration(path) == calibration()
    assert set(json.loads(path.read_text())["coefficients"]) == set(TERMS)


def _with_blocks(num_blocks: int) -> str:
    found = calibration()
    runner = msgspec.structs.replace(found.runner, num_blocks=num_blocks)
    return msgspec.json.encode(msgspec.structs.replace(found, runner=runner)).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "holds no calibration"),
        ("no JSON", "holds no calibration"),
        (msgspec.json.encode(calibration(format="headway-calibration-0")).decode(), "another version"),
        (msgspec.json.encode(calibration(coefficients={"constant": 1.0})).decode(), "another version"),
        (msgspec.json.encode(calibration(coefficients=TRUE | {"constant": -1.0})).decode(), "holds no"),
        (msgspec.json.encode(calibration(request_ns=-1.0)).decode(), "holds no calibration"),
        (msgspec.json.encode(calibration(engine_ns=(1e300, 0.0))).decode(), "holds no calibration"),
        (_with_blocks(0), "holds no calibration"),
        (_with_blocks(10**12), "holds no calibration"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_calibration(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_calibration(tmp_path / "none.json")
