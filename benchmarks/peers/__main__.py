"""The command: environments, models, measurements and the table, in this order; what is there already is kept."""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from headway.cli.options import positive
from peers.cases import CASES, Case, find_cases
from peers.compare import Bench, describe_cases, measure_case
from peers.driver import MODULES
from peers.environments import LLAMA_BUILD_OPTIONS, SetupFailed, ensure_environment, pinned
from peers.lock import Held, only_run
from peers.machine import describe_machine
from peers.make_models import ensure_model
from peers.places import DOCUMENT, LLAMA_CPP, OPENVINO, RESULTS, ROOT, Cache, default_cache
from peers.record import Record
from peers.render import render, replace_table

STEPS = ("setup", "models", "compare", "render")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="peers", description="Compare Headway with llama.cpp and OpenVINO GenAI."
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)} (default: all)")
    parser.add_argument(
        "--cases", help=f"separated by commas (default: all: {','.join(c.name for c in CASES)})"
    )
    parser.add_argument("--peers", default=f"{LLAMA_CPP},{OPENVINO}", help="default: %(default)s")
    parser.add_argument("--repeat", type=positive, default=5, help="rounds a case (default: %(default)s)")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="default: all CPUs"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="folder of environments and models"
    )
    parser.add_argument("--headway", default=str(ROOT / ".venv/bin/headway"), help="the command to measure")
    parser.add_argument(
        "--weights", action="append", default=[], metavar="CASE=FORMAT", help="Headway's format for a case"
    )
    parser.add_argument(
        "--types", default="", help="storage types to make models of besides those the cases need"
    )
    parser.add_argument("--fresh", action="store_true", help="measure what is on record again, settings too")
    parser.add_argument("--out", type=Path, help="results file (default: today's)")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    steps = args.steps or STEPS
    if unknown := set(steps) - set(STEPS):
        sys.exit(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    try:
        cases = find_cases(args.cases)
    except ValueError as error:
        sys.exit(str(error))
    cache, peers = Cache(args.cache.absolute()), args.peers.split(",")
    if unknown := set(peers) - set(MODULES):
        sys.exit(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
    try:
        with only_run(cache.root) if set(steps) - {"render"} else nullcontext():
            return run(args, steps, cases, cache, peers)
    except (Held, SetupFailed) as error:
        sys.exit(str(error))


def run(
    args: argparse.Namespace, steps: Sequence[str], cases: tuple[Case, ...], cache: Cache, peers: list[str]
) -> int:
    """Take the steps; return the exit code. The record is read first: setup takes minutes."""
    date = time.strftime("%Y-%m-%d")
    record = open_record(args.out or RESULTS / f"{date}-peers.json", steps, args.threads)
    if "setup" in steps:
        for peer in peers:
            ensure_environment(cache, peer)
    models = {}
    if {"models", "compare"} & set(steps):
        more = args.types.split(",") if args.types else []
        models = collect_models(cache, args.headway, [*(case.model for case in cases), *more])
    if "compare" in steps:
        bench = Bench(
            cache=cache,
            headway=args.headway,
            threads=args.threads,
            peers=peers,
            models={name: path for name, (path, _) in models.items()},
            weights=dict(pair.split("=", 1) for pair in args.weights),
            repeat=args.repeat,
        )
        compare(bench, cases, record, {"date": date} | facts(models, args.headway), fresh=args.fresh)
    if "render" in steps:
        source = record.path.resolve()
        shown = source.relative_to(ROOT) if source.is_relative_to(ROOT) else Path(source.name)
        replace_table(DOCUMENT, render(record.data, str(shown)))
    return 1 if any("error" in found for found in record.cases.values()) else 0


def open_record(path: Path, steps: Sequence[str], threads: int) -> Record:
    """Return the results file, or exit with a line that says why the steps cannot do with it."""
    try:
        record = Record(path)
        if "compare" in steps:
            record.check({"machine": describe_machine(), "threads": threads})
    except ValueError as error:
        sys.exit(str(error))
    if "render" in steps and "compare" not in steps and not record.cases:
        sys.exit(f"{path} {'holds no case yet' if path.exists() else 'does not exist'}: nothing to render")
    return record


def compare(
    bench: Bench, cases: tuple[Case, ...], record: Record, facts: dict[str, Any], *, fresh: bool
) -> None:
    try:
        record.describe({"threads": bench.threads, "targets": describe_cases(CASES)} | facts)
    except ValueError as error:
        sys.exit(str(error))
    renewed: set[str] = set()
    for case in cases:
        if fresh:  # no sooner: what is still to be measured again would be lost if the run was ended
            record.forget_case(case.name)
            if (swept := case.swept_by or case.name) not in renewed:
                record.forget_sweep(swept)
                renewed.add(swept)
        measure_case(bench, case, record)
    order = [case.name for case in CASES]
    record.data["cases"] = {name: record.cases[name] for name in order if name in record.cases}
    record.save()


def facts(models: dict[str, tuple[Path, str]], headway: str) -> dict[str, Any]:
    """Return what the results file says besides results."""
    version = output_of([headway, "--version"])
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return {
        "machine": describe_machine(),
        "headway": {"version": version.strip(), "commit": commit.stdout.strip() or None},
        "requirements": {peer: pinned(peer) for peer in MODULES},
        "llama_cpp_build_options": list(LLAMA_BUILD_OPTIONS),
        "models": {
            name: {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256}
            for name, (path, sha256) in models.items()
        },
    }


def output_of(command: list[str]) -> str:
    """Return what a command prints, or exit with its last line of complaint."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error}")
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        sys.exit(f"{' '.join(command)}: {words[-1]}")


def collect_models(cache: Cache, headway: str, names: Iterable[str]) -> dict[str, tuple[Path, str]]:
    """Return path and digest of each model, smollm2 or a storage type's; makes and fetches what is missing."""
    smollm2 = Path(output_of([headway, "pull", "smollm2"]).strip().splitlines()[-1])
    found = {}
    for name in dict.fromkeys(names):
        if name == "smollm2":
            found[name] = smollm2, hashlib.sha256(smollm2.read_bytes()).hexdigest()
        else:
            found[name] = ensure_model(cache.models, name, smollm2)
    return found


if __name__ == "__main__":
    sys.exit(main())
