"""`headway simulate pareto`: what throughput costs in latency, machine by machine."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_options import require_packages
from headway.cli.options import not_negative, positive
from headway.cli.simulation_options import (
    add_device_options,
    add_fleet_options,
    add_model,
    device_service,
    open_model,
)
from headway.cli.table import aligned

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.simulator.pareto import Point


def _numbers(text: str) -> tuple[int, ...]:
    """Parse whole numbers such as 1,8,32; raises ArgumentTypeError. Each counts once."""
    return tuple(dict.fromkeys(positive(part) for part in text.split(",")))


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "simulate pareto",
        help="predict what throughput costs in latency, machine by machine",
        description="Simulate a closed load of more and more users on each machine, with several sizes of chunk, and tell "
        "the settings that no other of the machine beats in both throughput and latency.",
    )
    add_model(parser)
    parser.add_argument(
        "--device",
        type=lambda text: tuple(dict.fromkeys(text.split(","))),
        metavar="NAME,NAME",
        default=("a10", "a100-80g", "h100-sxm"),
        help="machines, as of `headway simulate` (default: a10,a100-80g,h100-sxm)",
    )
    parser.add_argument(
        "--workload", default="context:1k", help="as of `headway bench` (default: %(default)s)"
    )
    parser.add_argument(
        "--users",
        type=_numbers,
        metavar="N,N",
        default=(1, 2, 4, 8, 16, 32, 64, 128),
        help="who asks at a time (default: 1,2,4 … 128)",
    )
    parser.add_argument(
        "--chunks",
        type=_numbers,
        metavar="N,N",
        default=(256, 2048),
        help="most prompt tokens of a step, in place of --max-prefill-tokens (default: 256,2048)",
    )
    parser.add_argument(
        "--output-tokens",
        type=positive,
        metavar="N",
        default=128,
        help="tokens of an answer (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=not_negative, metavar="N", default=0, help="of prompts (default: %(default)s)"
    )
    add_fleet_options(parser)
    add_device_options(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object with every setting")
    parser.add_argument(
        "--report", type=Path, metavar="F.html", help="write a page with the plot: one file, opens offline"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate and print; raises HeadwayError for what cannot be asked."""
    require_packages()
    from headway.lab.api import run_options
    from headway.lab.atomic_file import write_whole
    from headway.lab.html_report import check_report
    from headway.simulator.pareto import Setting, frontier, sweep
    from headway.simulator.pareto_page import HEAD, pareto_page, row
    from headway.simulator.simulation import simulated_endpoint

    if args.report is not None:
        check_report(args.report)
    model = open_model(args.model)
    settings = [
        Setting(num_users=users, max_prefill_tokens=chunk) for users in args.users for chunk in args.chunks
    ]
    services = {name: device_service(args, model, name) for name in args.device}
    points: dict[str, list[Point]] = {}
    for name, service in services.items():
        options = run_options(
            simulated_endpoint(name),
            model.name,
            workload=args.workload,
            output_tokens=args.output_tokens,
            seed=args.seed,
        )
        print(f"{name}: {len(settings)} settings", file=sys.stderr)
        points[name] = sweep(name, service, model.prompts, options, settings, count_tokens=model.count_tokens)
    said = [
        "Simulated, not measured.",
        *(f"{service.described()}." for service in services.values()),
        f"{args.workload}, answers of {args.output_tokens} tokens, closed loads.",
    ]
    if args.json:
        print(json.dumps(_as_json(said, points), indent=2))
    else:
        print("\n".join(said) + "\n")
        best = [point for found in points.values() for point in frontier(found)]
        print("\n".join(aligned([HEAD, *map(row, best)], "<>>>>>>")))
    if args.report is not None:
        page = pareto_page(f"What throughput costs: {model.name}", said, points)
        write_whole(args.report, page, "The report")
    return 0


def _as_json(said: list[str], points: "dict[str, list[Point]]") -> dict[str, object]:
    import msgspec

    from headway.core.version import __version__
    from headway.simulator.pareto import frontier

    return {
        "headway": __version__,
        "said": said,
        "devices": {
            name: [
                {**msgspec.to_builtins(point), "frontier": point in best}
                for best in [frontier(found)]
                for point in found
            ]
            for name, found in points.items()
        },
    }
