"""The command: environments and models, measurements, the table, in this order; what is there already is kept."""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from endpoints.cells import OUTPUT_TOKENS, Cell, find_cells
from endpoints.prepare import ensure_models, fetch_tcmalloc, model_files
from endpoints.process import ServerFailed, leave_on_sigterm
from endpoints.render import BEGIN, END, render
from endpoints.rounds import Plan, take_rounds
from endpoints.servers import SERVERS, Files, Server, headway, llama_server, vllm
from headway.cli.options import positive
from peers.__main__ import output_of
from peers.environments import SetupFailed, ensure_environment, pinned
from peers.lock import Held, only_run
from peers.machine import describe_machine
from peers.places import DOCUMENT, HEADWAY, LLAMA_CPP, RESULTS, ROOT, VLLM, Cache, default_cache
from peers.record import Record
from peers.render import replace_table

STEPS = ("setup", "measure", "render")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="endpoints", description="Compare Headway with llama-server and vLLM."
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--servers", default=",".join(SERVERS), help="default: %(default)s")
    parser.add_argument(
        "--workloads", help="light, medium, multi-turn, mixed, separated by commas (default: all)"
    )
    parser.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument("--requests", type=positive, metavar="N", help="requests a cell at most, to try it")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="folder of environments and models"
    )
    parser.add_argument(
        "--headway", default=str(ROOT / ".venv/bin/headway"), help="the command to measure with"
    )
    parser.add_argument("--fresh", action="store_true", help="measure what is on record again")
    parser.add_argument("--out", type=Path, help="results file (default: today's)")
    return parser.parse_args()


def main() -> int:
    leave_on_sigterm()
    args = parse_arguments()
    steps = args.steps or STEPS
    if unknown := set(steps) - set(STEPS):
        sys.exit(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    names = args.servers.split(",")
    if unknown := set(names) - set(SERVERS):
        sys.exit(f"no such server: {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    cache = Cache(args.cache.absolute())
    try:
        cells = find_cells(args.workloads)
        with only_run(cache.root) if set(steps) - {"render"} else nullcontext():
            return run(args, steps, cells, cache, names)
    except (Held, SetupFailed, ServerFailed, FileNotFoundError, ValueError) as error:
        sys.exit(str(error))


def run(
    args: argparse.Namespace, steps: Sequence[str], cells: Sequence[Cell], cache: Cache, names: list[str]
) -> int:
    """Take the steps; return the exit code. Raises ValueError for a results file that does not fit."""
    date = time.strftime("%Y-%m-%d")
    path = args.out or RESULTS / f"{date}-endpoints.json"
    if args.fresh and "measure" in steps:
        path.unlink(missing_ok=True)
    record = Record(path)
    settings = {"output_tokens": OUTPUT_TOKENS, "most_requests": args.requests}
    if "measure" in steps:
        record.check({"machine": describe_machine(), "threads": args.threads})
        if record.data.get("settings", settings) != settings:
            raise ValueError(
                f"{path.name} was measured with {record.data['settings']}; take another --out or --fresh"
            )
    if "setup" in steps:
        set_up(cache, args.headway, names)
    if "measure" in steps:
        files = model_files(cache)
        servers = {name: describe(name, cache, files, args) for name in names}
        record.describe(
            {"date": date, "threads": args.threads, "settings": settings}
            | facts(args.headway, demo_model(args.headway), files)
        )
        shown = {name: server.shown() for name, server in servers.items()}
        record.data["servers"] = record.data.get("servers", {}) | shown
        plan = Plan(
            headway=args.headway,
            servers=servers,
            cells=cells,
            rounds=args.rounds,
            most_requests=args.requests,
            logs=cache.root,
        )
        take_rounds(plan, record)
    if "render" in steps:
        source = path.resolve()
        shown_path = source.relative_to(ROOT) if source.is_relative_to(ROOT) else Path(source.name)
        replace_table(DOCUMENT, render(record.data, str(shown_path)), BEGIN, END)
    runs = (run for case in record.cases.values() for runs in case["runs"].values() for run in runs)
    return 1 if any("error" in run for run in runs) else 0


def set_up(cache: Cache, command: str, names: Sequence[str]) -> None:
    """Make environments and models; llama.cpp's also turns the model into Q8_0."""
    for peer in dict.fromkeys((LLAMA_CPP, *names)):
        if peer != HEADWAY:
            ensure_environment(cache, peer)
    if VLLM in names:
        fetch_tcmalloc(cache)
    ensure_models(cache, demo_model(command))


def describe(name: str, cache: Cache, files: Files, args: argparse.Namespace) -> Server:
    """Return how a server is started."""
    match name:
        case "headway":
            return headway(args.headway, args.threads)
        case "llama.cpp":
            return llama_server(cache, files, args.threads)
        case _:
            return vllm(cache, files, args.threads)


def demo_model(command: str) -> Path:
    """Return the demo model's file, fetched if it is not there."""
    return Path(output_of([command, "pull", "smollm2"]).strip().splitlines()[-1])


def facts(command: str, gguf: Path, files: Files) -> dict[str, Any]:
    """Return what the results file says besides results."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    models = (gguf, files.q8_0, files.bf16_folder / "model.safetensors")
    return {
        "machine": describe_machine(),
        "headway": {
            "version": output_of([command, "--version"]).strip(),
            "commit": commit.stdout.strip() or None,
        },
        "requirements": {peer: pinned(peer) for peer in (LLAMA_CPP, VLLM)},
        "models": {
            path.name: {
                "bytes": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in models
        },
    }


if __name__ == "__main__":
    sys.exit(main())
