"""`headway calibrate`: measures how long a model's steps take on this machine, for `headway simulate`."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.bench_options import require_packages
from headway.cli.options import MODEL_HELP, add_engine_options, engine_config, positive

if TYPE_CHECKING:
    from headway.cli.main import Subparsers
    from headway.simulator.calibration import Calibration

DISTURBED = 0.08
"""Median error of a fit to doubt: undisturbed it is 2 to 4 % for SmolLM2, with all cores shared it was 21 %."""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure this machine for `headway simulate`",
        description="Time a model's steps over a grid of prompts, streams and contexts, the engine's own Python, and what "
        "serving adds; fit a model of them, and tell how well it predicts steps that were not fitted. Let nothing else run "
        "meanwhile. Takes two minutes and a half for SmolLM2.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help=f"shape:NAME (steps alone are measured then), {MODEL_HELP}"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F.json",
        help="file for the result (default: calibration.json)",
        default=Path("calibration.json"),
    )
    parser.add_argument(
        "--budget",
        type=positive,
        metavar="S",
        default=45,
        help="seconds for steps, of which each is timed at least three times (default: %(default)s)",
    )
    add_engine_options(parser)
    parser.add_argument("--json", action="store_true", help="print the file's object instead of sentences")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, write and print; raises HeadwayError for what is no model, or a file that cannot be written."""
    require_packages()
    import msgspec

    from headway.cli.calibration_run import calibrated
    from headway.lab.atomic_file import check_writable
    from headway.simulator.calibration import write_calibration

    check_writable(args.output, "The calibration")
    found = calibrated(engine_config(args, args.model, ""), args.budget, _tell)
    write_calibration(found, args.output)
    if args.json:
        print(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        print(as_text(found, args.output))
    return 0


def as_text(found: "Calibration", path: Path) -> str:
    """Return what was found, for a terminal."""
    return "\n".join([*_lines(found), f"Written to {path}."])


def _lines(found: "Calibration") -> Iterator[str]:
    fit, engine, serving = found.fit, found.engine_ns, found.serving_step_ns
    yield (
        f"Steps of {found.model}: predicted within {fit.held_out_median:.1%} (median) and {fit.held_out_p90:.1%} (nine of "
        f"ten) of {fit.num_held_out} steps that were not fitted; {fit.num_fitted} were."
    )
    if fit.held_out_median > DISTURBED:
        yield "That is much: something else ran meanwhile, or the processor changed its clock. Measure again."
    yield f"The engine's Python: {engine[0] / 1e3:,.0f} µs a step, {engine[1] / 1e3:,.1f} µs a sequence."
    if not found.served:
        yield "Serving was not measured: a shape has no tokenizer."
        return
    yield (
        f"Serving: {serving[0] / 1e3:,.0f} µs a step and {serving[1] / 1e3:,.0f} µs a stream more, and the runner "
        f"{found.serving_factor:.2f} times what it takes alone; {found.request_ns / 1e6:,.1f} ms a request and "
        f"{found.prompt_token_ns / 1e3:,.1f} µs a prompt token before its queue."
    )


def _tell(what: str) -> None:
    print(what, file=sys.stderr)
