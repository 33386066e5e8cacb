"""The command: environments and models, cells, the table, in this order; what is on record is kept."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from endpoints.__main__ import demo_model, facts, set_up
from endpoints.prepare import model_files
from endpoints.process import ServerFailed, leave_on_sigterm
from endpoints.servers import Server, headway, llama_server, vllm
from headway.cli.options import above_zero, positive
from headway.core.errors import HeadwayError
from peers.environments import SetupFailed
from peers.lock import Held, only_run
from peers.places import DOCUMENT, HEADWAY, LLAMA_CPP, RESULTS, ROOT, VLLM, Cache, default_cache
from peers.record import Record
from peers.render import replace_table
from scheduling.cells import CELLS, OUTPUT_TOKENS, Case, knee
from scheduling.render import markers, render
from scheduling.stage import Stage, say

STEPS = ("setup", "measure", "render")
NAMES = ("knee", *CELLS)
SERVERS = (HEADWAY, LLAMA_CPP, VLLM)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scheduling", description="Measure what scheduling promises.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--cells", default=",".join(NAMES), help="default: %(default)s")
    parser.add_argument("--servers", default=",".join(SERVERS), help="of the knee (default: %(default)s)")
    parser.add_argument(
        "--scale", type=above_zero, default=1.0, metavar="X", help="offer loads X times as long, to try it"
    )
    parser.add_argument("--slots", type=positive, default=16, help="sequences at once (default: %(default)s)")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="folder of environments and models"
    )
    parser.add_argument("--headway", default=str(ROOT / ".venv/bin/headway"), help="the command that serves")
    parser.add_argument("--fresh", action="store_true", help="measure what is on record again")
    parser.add_argument("--out", type=Path, help="results file (default: today's)")
    return parser.parse_args()


def main() -> int:
    leave_on_sigterm()
    args = parse_arguments()
    steps = args.steps or STEPS
    for asked, known in (
        (steps, STEPS),
        (args.cells.split(","), NAMES),
        (args.servers.split(","), SERVERS),
    ):
        if unknown := set(asked) - set(known):
            sys.exit(f"no such thing: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    cache = Cache(args.cache.absolute())
    try:
        with only_run(cache.root) if set(steps) - {"render"} else nullcontext():
            return run(args, steps, cache)
    except (Held, SetupFailed, FileNotFoundError, ValueError) as error:
        sys.exit(str(error))


def run(args: argparse.Namespace, steps: Sequence[str], cache: Cache) -> int:
    """Take the steps; return the exit code. Raises ValueError for a results file that does not fit."""
    date = time.strftime("%Y-%m-%d")
    path = (args.out or RESULTS / f"{date}-scheduling.json").resolve()
    servers = args.servers.split(",")
    if args.fresh and "measure" in steps:
        path.unlink(missing_ok=True)
    record = Record(path)
    if "setup" in steps and "knee" in args.cells.split(","):
        set_up(cache, args.headway, servers)
    if "measure" in steps:
        settings = {"output_tokens": OUTPUT_TOKENS, "slots": args.slots, "scale": args.scale}
        if record.data.get("settings", settings) != settings:
            raise ValueError(
                f"{path.name} was measured with {record.data['settings']}; take another --out or --fresh"
            )
        record.describe(
            {"date": date, "threads": args.threads, "settings": settings}
            | facts(args.headway, demo_model(args.headway), model_files(cache))
        )
        measure(args, cache, record, servers)
    if "render" in steps and path.is_relative_to(ROOT):  # a try elsewhere changes no document
        replace_table(DOCUMENT, render(record.data, str(path.relative_to(ROOT))), *markers(path))
    return 1 if any("error" in case for case in record.cases.values()) else 0


def measure(args: argparse.Namespace, cache: Cache, record: Record, servers: Sequence[str]) -> None:
    """Measure the cells that are asked for and not on record, saving after each."""

    def keep(name: str, case: Case) -> None:
        record.cases[name] = case
        record.save()

    stage = Stage(
        command=args.headway,
        threads=args.threads,
        slots=args.slots,
        scale=args.scale,
        logs=cache.root,
        record=keep,
        known=lambda name: known if "runs" in (known := record.cases.get(name, {})) else None,
    )
    for name, cell in asked_cells(args, cache, record, servers).items():
        if stage.known(name) is not None:
            continue
        say(name)
        started_s = time.monotonic()
        try:
            keep(name, cell(stage))
        except (ServerFailed, HeadwayError, FileNotFoundError, ValueError) as error:
            keep(name, {"error": str(error)})
            say(f"  failed: {error}")
        say(f"  took {time.monotonic() - started_s:.0f} s")


def asked_cells(
    args: argparse.Namespace, cache: Cache, record: Record, servers: Sequence[str]
) -> dict[str, Callable[[Stage], Case]]:
    """Return the cells by the names of their cases, in the order in which they are measured."""
    commands = {name: server for name in servers if (server := describe(name, cache, args)) is not None}
    shown: dict[str, Any] = {name: server.shown() for name, server in commands.items()}
    shown[HEADWAY] = headway(args.headway, args.threads).shown()
    record.data["servers"] = record.data.get("servers", {}) | shown
    cells: dict[str, Callable[[Stage], Case]] = {}
    for name in args.cells.split(","):
        if name == "knee":
            cells |= {f"knee {of}": partial(knee, server=commands.get(of)) for of in servers}
        else:
            cells[name] = CELLS[name]
    return cells


def describe(name: str, cache: Cache, args: argparse.Namespace) -> Server | None:
    """Return how a server is started; None for Headway, whose options are the cells'."""
    match name:
        case "llama.cpp":
            return llama_server(cache, model_files(cache), args.threads, args.slots)
        case "vllm":
            return vllm(cache, model_files(cache), args.threads, args.slots)
        case _:
            return None


if __name__ == "__main__":
    sys.exit(main())
