"""What `headway calibrate` found on a machine, as a value and as a JSON file: what steps, Python and serving take there.

A step's time is linear in what it carries (`terms`), but for its rows: a few rows cost next to nothing more than one, up to
where computing takes longer than reading the weights, and kernels work on rows in groups. So rows count by a broken line
through `KNOTS`, whose pieces are fitted as everything else is; none falls.
"""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec

from headway.core.errors import ConfigError
from headway.runner.step import RunnerInfo, Step
from headway.simulator.costs import ServingCost
from headway.simulator.step_load import StepLoad, load_of

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Rows at which the line may bend."""

TERMS = (
    "constant",
    *(f"rows {first} to {last}" for first, last in pairwise(KNOTS)),
    f"rows over {KNOTS[-1]}",
    "drawn",
    "context",
    "pairs",
    "prefix",
    "sequences",
)
FORMAT = "headway-calibration-1"

_Count = Annotated[int, msgspec.Meta(ge=1, le=10**7)]
"""As many blocks are simulated one by one: a terabyte of them for a small model."""
_Ns = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""Nothing that is measured takes a quarter of an hour, nor less than no time."""
_Factor = Annotated[float, msgspec.Meta(gt=0, le=100)]
_Error = Annotated[float, msgspec.Meta(ge=0)]


def terms(load: StepLoad) -> tuple[float, ...]:
    """Return the numbers that `Calibration.coefficients` weigh, in the order of `TERMS`."""
    rows = load.rows
    return (
        1.0,
        *(float(max(0, min(rows, last) - first)) for first, last in pairwise(KNOTS)),
        float(max(0, rows - KNOTS[-1])),
        float(load.drawn),
        float(load.context),
        float(load.pairs),
        float(load.prefix),
        float(load.sequences),
    )


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How well the coefficients predict steps: relative errors of those fitted, and of those kept from the fit."""

    num_fitted: int
    fitted_median: _Error
    num_held_out: int
    held_out_median: _Error
    held_out_p90: _Error


class MachineRunner(msgspec.Struct, frozen=True, kw_only=True):
    """What the measured runner was."""

    vocab_size: _Count
    max_context: _Count
    num_blocks: _Count
    block_size: _Count


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one machine. Nanoseconds throughout.

    coefficients     of `TERMS`, of the runner alone
    engine_ns        the engine's own Python: of a step, and of each of its sequences
    serving_factor   what the runner takes while it is served, as a multiple of what it takes alone
    serving_step_ns  and what a step takes longer besides: at all, and for each of its streams
    request_ns, prompt_token_ns   what a request takes before the engine has it, and each token of its prompt
    served           whether those were measured
    """

    format: str
    headway: str
    model: str
    settings: dict[str, str | int | None]
    runner: MachineRunner
    coefficients: dict[str, _Ns]
    fit: Fit
    engine_ns: tuple[_Ns, _Ns] = (0.0, 0.0)
    serving_factor: _Factor = 1.0
    serving_step_ns: tuple[_Ns, _Ns] = (0.0, 0.0)
    request_ns: _Ns = 0.0
    prompt_token_ns: _Ns = 0.0
    served: bool = False

    def runner_ns(self, load: StepLoad) -> float:
        """Return what the runner takes for `load`."""
        weights = (self.coefficients[name] for name in TERMS)
        return sum(weight * number for weight, number in zip(weights, terms(load), strict=True))

    def info(self) -> RunnerInfo:
        """Return the runner to simulate."""
        return RunnerInfo(**msgspec.structs.asdict(self.runner), system_fingerprint="simulated")

    @property
    def serving(self) -> ServingCost:
        """What the way to the engine takes."""
        return ServingCost(request_ns=self.request_ns, prompt_token_ns=self.prompt_token_ns)


@dataclass(frozen=True, slots=True)
class CalibratedCost:
    """A `StepCost` by a calibration."""

    calibration: Calibration

    def step_ns(self, step: Step) -> int:
        """See StepCost."""
        load, found = load_of(step), self.calibration
        engine, serving = found.engine_ns, found.serving_step_ns
        overhead = engine[0] + serving[0] + (engine[1] + serving[1]) * load.sequences
        return max(0, round(found.runner_ns(load) * found.serving_factor + overhead))


def write_calibration(found: Calibration, path: Path) -> None:
    """Write a calibration as JSON; raises ConfigError where that cannot be."""
    try:
        path.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def read_calibration(path: Path) -> Calibration:
    """Read what `write_calibration` wrote; raises ConfigError for anything else."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} holds no calibration: {error}.") from error
    if found.format != FORMAT or set(found.coefficients) != set(TERMS):
        raise ConfigError(f"{path} is of another version of Headway: run `headway calibrate` again.")
    return found
