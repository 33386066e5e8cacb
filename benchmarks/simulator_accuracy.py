"""How far `headway simulate` is off the real engine: `make bench-simulator` [BENCH_ARGS="--repeat 3 --requests 60"].

Real: `headway serve` without drafts, measured by the lab with Poisson arrivals; a fresh server for every run, so that
nothing is cached of the run before. Simulated: the same workload, seed and arrivals on a calibration of this machine, and
answers as long as the first real run had them (they are always the same at temperature 0). A round is one calibration and
one run of everything: a machine that its neighbours slow down by a quarter for minutes is slower for both. Rates are 30, 60
and 80 % of the knee: the highest at which 95 % of the TTFTs stay within 480 ms, or within three times what 95 % of them stay
within for one user alone where that is more, by bisection in the simulation, or on the server with `--knee measured`.

The error of a figure is |mean of the simulated runs / mean of the real ones - 1|; allowed is 10 %, or the half-width of the
95 % interval of the real runs' mean (Student's t over the runs) where it is more. Prints and writes one JSON object with the
figures of every run.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from scipy import stats

from headway.cli.calibration_run import calibrated
from headway.cli.simulation_options import SimulatedModel, open_model
from headway.core.config import EngineConfig, SchedulerConfig
from headway.lab.endpoint import parse_endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.run_options import RunOptions
from headway.simulator.calibration import CalibratedCost, Calibration
from headway.simulator.loader import Service
from headway.simulator.simulation import simulate, simulated_endpoint
from headway.simulator.talk import Lengths, lengths_of
from headway.simulator.time_serving import warm_up
from peers.places import RESULTS, ROOT
from peers.render import replace_table
from scheduling.knee import Trial, bracket, next_rate
from serving import Server
from simulator_table import BEGIN, DOCUMENT, END, render

WORKLOADS = ("light", "medium", "multi-turn")
SHARES = (0.3, 0.6, 0.8)
LIMIT = 0.10
LEAST_ARRIVALS = 8
"""Of requests, or of conversations of five turns."""
LEAST_TTFT_MS = 480
SETTLE_S = 10
"""Without requests: a new server gives its KV cache memory when it has nothing else to do."""
KNEE_REQUESTS = 200
OPTIONS = RunOptions(endpoint=simulated_endpoint("none"), num_processes=1)
SCHEDULER = SchedulerConfig(max_draft_tokens=0)
MANY = 16
"""Users at once who ask as fast as they are answered: more would be answered no faster."""
FIGURES = ("ttft_p50_ms", "ttft_p95_ms", "output_tok_s")


def figures(result: RunResult) -> dict[str, float]:
    """Return what is compared."""
    summary = result.summary
    ttft = summary.ttft.successes.percentiles
    found = (ttft["p50"], ttft["p95"], summary.output_tok_s)
    return {name: float(value or 0.0) for name, value in zip(FIGURES, found, strict=True)}


class Simulated:
    """The calibrated machine."""

    def __init__(self, model: SimulatedModel, calibration: Calibration) -> None:
        self._model = model
        self._service = Service(
            name=model.name,
            runner=calibration.info(),
            step=CalibratedCost(calibration),
            serving=calibration.serving,
            scheduler=SCHEDULER,
        )

    def run(self, options: RunOptions, lengths: Lengths | None = None) -> RunResult:
        """Simulate a run."""
        options = replace(options, endpoint=simulated_endpoint("calibrated machine"))
        return simulate(
            options,
            self._service,
            self._model.prompts,
            lengths=lengths,
            count_tokens=self._model.count_tokens,
        )


class Real:
    """The server, a new one for every run."""

    def __init__(self, model: str) -> None:
        self._model = model

    def run(self, options: RunOptions) -> RunResult:
        """Measure a run, after the first seconds of a server, which are slower than what follows."""
        server = Server(self._model, ["--max-draft-tokens", "0"])
        try:
            endpoint = parse_endpoint(f"http://127.0.0.1:{server.port}")
            asyncio.run(measure(warm_up(replace(options, endpoint=endpoint))))
            time.sleep(SETTLE_S)
            return asyncio.run(measure(replace(options, endpoint=endpoint)))
        finally:
            server.stop()


def knee(options: RunOptions, run: Callable[[RunOptions], RunResult]) -> float:
    """Return the highest rate, in conversations/s, that keeps the limit on TTFT, around what the service can do at all."""
    alone = run(replace(options, arrival="closed:1", num_requests=12, output_tokens=16))
    # By the slowest of one user's: most turns of a conversation have little to compute, and its first has all.
    limit_ms = max(LEAST_TTFT_MS, 3 * figures(alone)["ttft_p95_ms"])
    full = run(replace(options, arrival=f"closed:{MANY}", num_requests=6 * MANY)).summary
    tenth: float = full.num_ok / full.duration_s / 10
    trials: list[Trial] = []
    while (rate := next_rate(trials, 5.0)) is not None:
        result = run(replace(options, arrival=f"poisson:{rate * tenth:.4g}", num_requests=KNEE_REQUESTS))
        kept = result.summary.num_ok == KNEE_REQUESTS and figures(result)["ttft_p95_ms"] <= limit_ms
        trials.append(Trial(rate, kept))
    low, _ = bracket(trials)
    if low is None:
        raise RuntimeError(f"no knee of {options.workload}: {trials}")
    return low * tenth


@dataclass
class Cell:
    """One workload at one rate: what its real runs gave, and what was simulated after each."""

    workload: str
    share: float
    options: RunOptions
    lengths: Lengths = field(default_factory=dict)
    real: list[dict[str, Any]] = field(default_factory=list)
    simulated: list[dict[str, float]] = field(default_factory=list)

    def run(self, real: Real, simulated: Simulated) -> None:
        """Add a real run, and one simulated on the calibration made in the same minutes."""
        result = real.run(self.options)
        if not self.lengths:
            self.lengths = lengths_of(result.exchanges)
        self.real.append({**figures(result), "ok": result.summary.num_ok, "believable": result.believable})
        self.simulated.append(figures(simulated.run(self.options, self.lengths)))
        print(f"{self.workload} at {self.share}: {self.real[-1]} {self.simulated[-1]}", file=sys.stderr)

    def errors(self) -> dict[str, dict[str, Any]]:
        """Return how far the mean simulation is off the mean real run, figure by figure."""
        found = {}
        for name in FIGURES:
            values = [float(run[name]) for run in self.real]
            mean, half = statistics.fmean(values), 0.0
            if len(values) > 1:
                quantile = float(stats.t.ppf(0.975, len(values) - 1))
                half = quantile * statistics.stdev(values) / len(values) ** 0.5 / mean
            predicted = statistics.fmean(run[name] for run in self.simulated)
            error = abs(predicted / mean - 1)
            found[name] = {
                "real": round(mean, 2),
                "simulated": round(predicted, 2),
                "error": round(error, 4),
                "half_width": round(half, 4),
                "within": error <= max(LIMIT, half),
            }
        return found


def main() -> int:
    """Compare and print; 1 where an error is larger than allowed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="of the knee")
    parser.add_argument("--requests", type=int, default=100, help="most in a run")
    parser.add_argument("--seconds", type=float, default=60, help="of a run, about")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--knee", choices=("simulated", "measured"), default="simulated")
    parser.add_argument(
        "--output",
        type=lambda text: Path(text).absolute(),
        help="keep the JSON object, written anew after every run; in bench/results the table of docs/simulator.md, too",
    )
    args = parser.parse_args()
    model = open_model(args.model)
    real = Real(args.model)
    calibrations: list[Calibration] = []
    cells: list[Cell] = []
    knees: dict[str, float] = {}
    for number in range(args.repeat):
        calibrations.append(
            calibrated(EngineConfig(model=args.model), 45, lambda what: print(what, file=sys.stderr))
        )
        simulated = Simulated(model, calibrations[-1])
        if not number:
            for workload in args.workloads.split(","):
                run = simulated.run if args.knee == "simulated" else real.run
                options = replace(
                    OPTIONS, workload=workload, output_tokens=args.output_tokens, seed=args.seed
                )
                knees[workload] = knee(options, run)
                print(f"knee of {workload}: {knees[workload]:.3g}/s", file=sys.stderr)
                cells += [
                    Cell(workload, share, at_rate(options, knees[workload] * share, args))
                    for share in map(float, args.shares.split(","))
                ]
        for cell in cells:
            cell.run(real, simulated)
            text = json.dumps(report(args, calibrations, knees, cells), indent=1)
            if args.output is not None:
                args.output.write_text(text + "\n")
                if args.output.is_relative_to(RESULTS):
                    replace_table(
                        DOCUMENT, render(json.loads(text), str(args.output.relative_to(ROOT))), BEGIN, END
                    )
    print(text)
    return 0 if all(each["within"] for cell in cells for each in cell.errors().values()) else 1


def at_rate(options: RunOptions, rate: float, args: argparse.Namespace) -> RunOptions:
    """Return the run at `rate` arrivals/s: as many requests as come in the time, within bounds."""
    num_turns = 5 if options.workload == "multi-turn" else 1
    count = min(args.requests, num_turns * max(LEAST_ARRIVALS, round(rate * args.seconds)))
    return replace(options, arrival=f"poisson:{rate:.4g}", num_requests=count)


def report(
    args: argparse.Namespace, calibrations: list[Calibration], knees: dict[str, float], cells: list[Cell]
) -> dict[str, Any]:
    """Return all that was found so far."""
    return {
        "written_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
        "settings": {
            name: getattr(args, name)
            for name in ("model", "requests", "seconds", "output_tokens", "repeat", "seed", "knee")
        },
        "calibrations": [
            msgspec.to_builtins(
                {
                    "fit": found.fit,
                    "engine_ns": found.engine_ns,
                    "serving_step_ns": found.serving_step_ns,
                    "serving_factor": found.serving_factor,
                    "request_ns": found.request_ns,
                    "prompt_token_ns": found.prompt_token_ns,
                }
            )
            for found in calibrations
        ],
        "knees": knees,
        "cells": [
            {
                "workload": cell.workload,
                "share": cell.share,
                "arrival": cell.options.arrival,
                "num_requests": cell.options.num_requests,
                "figures": cell.errors(),
                "real_runs": cell.real,
                "simulated_runs": cell.simulated,
            }
            for cell in cells
            if cell.real
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
