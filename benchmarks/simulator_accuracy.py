"""How far `headway simulate` is off the real engine: `make bench-simulator` [BENCH_ARGS="--repeat 3 --requests 60"].

Real: `headway serve` without drafts, measured by the lab with Poisson arrivals; a fresh server for every run, so that
nothing is cached of the run before. Simulated: the same workload, seed and arrivals on the calibration of this machine,
answers as long as the first real run had them (they are always the same at temperature 0). Rates are 30, 60 and 80 % of the
knee: the highest at which 95 % of the TTFTs stay within 480 ms, or within three times what one user alone waits where that
is more, found by the lab's ladder in the simulation, or on the server with `--knee measured`.

The error of a figure is |simulated / mean of the real runs - 1|; allowed is 10 %, or the half-width of the 95 % interval of
that mean (Student's t over the runs) where it is more. Prints and writes one JSON object with the figures of every run.
"""

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scipy import stats

from headway.cli.calibration_run import calibrated
from headway.cli.simulation_options import SimulatedModel, open_model
from headway.core.config import EngineConfig, SchedulerConfig
from headway.lab.endpoint import parse_endpoint
from headway.lab.ladder_run import LadderRun
from headway.lab.measurement import RunResult, measure
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from headway.simulator.calibration import CalibratedCost, Calibration, read_calibration, write_calibration
from headway.simulator.loader import Service
from headway.simulator.simulation import simulate, simulated_endpoint
from headway.simulator.talk import Lengths, lengths_of
from headway.simulator.time_serving import warm_up
from serving import Server

WORKLOADS = ("light", "medium", "multi-turn")
SHARES = (0.3, 0.6, 0.8)
LIMIT = 0.10
LEAST_TTFT_MS = 480
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
            return asyncio.run(measure(replace(options, endpoint=endpoint)))
        finally:
            server.stop()


def knee(options: RunOptions, run: Any) -> float:
    """Return the highest rate that keeps the limit on TTFT, by the lab's ladder around what the service can do at all."""
    alone = run(replace(options, arrival="closed:1", num_requests=12, output_tokens=16))
    limit_ms = max(LEAST_TTFT_MS, 3 * figures(alone)["ttft_p50_ms"])
    slo = parse_slo(f"ttft={limit_ms:.0f}ms")
    full = run(replace(options, arrival=f"closed:{MANY}", num_requests=6 * MANY)).summary
    most = full.num_ok / full.duration_s
    rules = f"floor_rate={most / 50:.4g},start_rate={most / 2:.4g},target_rate={2 * most:.4g},step_rate={most / 4:.4g}"
    ladder = run(replace(options, arrival=f"ladder:{rules}", slo=slo, num_requests=100)).ladder
    assert isinstance(ladder, LadderRun)
    if ladder.finding is None or ladder.finding.kept is None:
        raise RuntimeError(f"no knee of {options.workload}: {ladder.sentence()}")
    return ladder.finding.kept.rate


def compare(options: RunOptions, real: Real, simulated: Simulated, repeat: int) -> dict[str, Any]:
    """Return the figures of all runs at one rate, and how far the simulation is off."""
    runs = []
    lengths: Lengths | None = None
    for _ in range(repeat):
        result = real.run(options)
        if lengths is None:
            lengths = lengths_of(result.exchanges)
        runs.append({**figures(result), "ok": result.summary.num_ok, "believable": result.believable})
    predicted = figures(simulated.run(options, lengths))
    errors = {}
    for name in FIGURES:
        values = [float(run[name]) for run in runs]
        mean = statistics.fmean(values)
        half = 0.0
        if repeat > 1:
            half = float(stats.t.ppf(0.975, repeat - 1)) * statistics.stdev(values) / repeat**0.5 / mean
        error = abs(predicted[name] / mean - 1)
        allowed = max(LIMIT, half)
        errors[name] = {
            "real": round(mean, 2),
            "simulated": round(predicted[name], 2),
            "error": round(error, 4),
            "half_width": round(half, 4),
            "within": error <= allowed,
        }
    return {"figures": errors, "real_runs": runs, "simulated_run": predicted}


def main() -> int:
    """Compare and print; 1 where an error is larger than allowed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="of the knee")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--knee", choices=("simulated", "measured"), default="simulated")
    parser.add_argument("--calibration", type=Path, help="use it, or make it there (default: measure anew)")
    parser.add_argument("--output", type=Path, help="keep the JSON object")
    args = parser.parse_args()
    calibration = calibration_of(args.model, args.calibration)
    model = open_model(args.model)
    simulated, real = Simulated(model, calibration), Real(args.model)
    report: dict[str, Any] = {
        "started_at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
        "settings": {
            name: getattr(args, name)
            for name in ("model", "requests", "output_tokens", "repeat", "seed", "knee")
        },
        "calibration": {
            "fit": {name: getattr(calibration.fit, name) for name in calibration.fit.__struct_fields__}
        },
        "workloads": {},
    }
    for workload in args.workloads.split(","):
        options = RunOptions(
            endpoint=simulated_endpoint("none"),
            workload=workload,
            num_requests=args.requests,
            output_tokens=args.output_tokens,
            seed=args.seed,
            num_processes=1,
        )
        rate = knee(options, simulated.run if args.knee == "simulated" else real.run)
        found: dict[str, Any] = {"knee": rate, "shares": {}}
        for share in args.shares.split(","):
            at_rate = replace(options, arrival=f"poisson:{rate * float(share):.4g}")
            found["shares"][share] = compared = compare(at_rate, real, simulated, args.repeat)
            for name, each in compared["figures"].items():
                print(f"{workload} at {share} of {rate:.3g}/s: {name} {each}", file=sys.stderr)
        report["workloads"][workload] = found
    text = json.dumps(report, indent=1)
    print(text)
    if args.output is not None:
        args.output.write_text(text + "\n")
    within = [
        each["within"]
        for found in report["workloads"].values()
        for compared in found["shares"].values()
        for each in compared["figures"].values()
    ]
    return 0 if all(within) else 1


def calibration_of(model: str, path: Path | None) -> Calibration:
    """Return the calibration in the file, or measure one and leave it there."""
    if path is not None and path.exists():
        return read_calibration(path)
    found = calibrated(EngineConfig(model=model), 45, lambda what: print(what, file=sys.stderr))
    if path is not None:
        write_calibration(found, path)
    return found


if __name__ == "__main__":
    sys.exit(main())
