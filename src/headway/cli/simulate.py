"""`headway simulate`: what a load would take on a machine that is not here, by the engine itself on a virtual clock."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_options import add_load_options, check_raw, load_options, require_packages
from headway.cli.simulation_options import (
    add_device_options,
    add_fleet_options,
    add_model,
    calibrated_service,
    device_service,
    open_model,
)
from headway.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.cli.main import Subparsers
    from headway.lab.exchange import Exchange
    from headway.lab.measurement import RunResult
    from headway.simulator.loader import Service


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help="predict the latency of a model on a machine, under a load",
        description="Run the engine's own scheduler, block pool and prefix cache on a virtual clock, on which a step takes "
        "what is predicted: by what `headway calibrate` measured, or by a device's published figures. Loads and reports are "
        "those of `headway bench`. docs/simulator.md tells what is predicted, and what is not.",
    )
    add_model(parser)
    machine = parser.add_mutually_exclusive_group(required=True)
    machine.add_argument(
        "--calibration", type=Path, metavar="F.json", help="the machine that `headway calibrate` measured"
    )
    machine.add_argument(
        "--device", metavar="NAME", help="a10, l4, a100-80g, h100-sxm, h200 or epyc-9354, by its roofline"
    )
    add_load_options(parser, client=False)
    parser.add_argument(
        "--answers",
        type=Path,
        metavar="F.parquet",
        help="let answers be as long as in this record of a run with the same workload and seed "
        "(default: as long as --output-tokens allows)",
    )
    add_fleet_options(parser)
    add_device_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--report", metavar="F.html", help="write a page with plots as well: one file, opens offline"
    )
    parser.add_argument("--raw", type=Path, metavar="F.parquet", help="keep the record of every request")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; raises HeadwayError for what cannot be asked."""
    require_packages()
    from headway.lab.html_report import check_report, write_report
    from headway.lab.raw_file import write_raw
    from headway.simulator.calibration import read_calibration
    from headway.simulator.simulation import simulate, simulated_endpoint
    from headway.simulator.talk import lengths_of

    if args.raw is not None:
        check_raw(args.raw)
    if args.report is not None:
        check_report(args.report)
    calibration = None if args.calibration is None else read_calibration(args.calibration)
    model = open_model(args.model, calibration)
    if calibration is None:
        service = device_service(args, model, args.device)
    else:
        service = calibrated_service(args, model, calibration)
    endpoint = simulated_endpoint("calibrated machine" if calibration else args.device)
    result = simulate(
        load_options(args, endpoint, model.name),
        service,
        model.prompts,
        lengths=None if args.answers is None else lengths_of(_exchanges(args.answers)),
        count_tokens=model.count_tokens,
    )
    found = as_json(result, service)
    if args.raw is not None:
        write_raw(args.raw, result, found)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        from headway.cli.bench_report import as_text

        print(as_text(result))
    if args.report is not None:
        write_report(result, args.report)
    return 0


def as_json(result: "RunResult", service: "Service") -> dict[str, object]:
    """Return what `headway bench --json` prints, and what was simulated."""
    import msgspec

    from headway.cli.bench_report import as_json

    return {
        **as_json(result),
        "simulation": {
            "machine": service.machine,
            "replicas": service.num_replicas,
            "route": service.route,
            "kv_blocks": service.runner.num_blocks,
            "scheduler": msgspec.to_builtins(service.scheduler),
        },
    }


def _exchanges(path: Path) -> "Sequence[Exchange]":
    from headway.cli.bench_options import require_pyarrow

    require_pyarrow()
    from headway.lab.raw_file import read_raw

    saved = read_raw(path)
    if any(step is not None for step in saved.steps):
        raise ConfigError(
            f"{path} holds a ladder, whose steps ask what they need: give the record of one load."
        )
    return saved.exchanges
