"""What it takes to bring the KV of a prefix back from memory or from disk, against computing it again.

    python benchmarks/kv_tiers.py [--model smollm2] [--tokens 2000] [--folder DIR] [--runs 5] [--ways host disk] [--cold]

One request at a time on the native engine: the prefix is computed once, evicted by another prompt, and asked for again, so
that TTFT is the time of what is measured. Files were written just before: the kernel still has them in memory, unless
`--cold` asks it to forget them before each read (posix_fadvise; a disk's own cache stays).
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event

import msgspec

from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.kv.block_files import BlockFiles
from headway.kv.host_store import HostStore
from headway.kv.job_thread import JobThread
from headway.kv.tiers import Tiers
from headway.models.architectures import open_plan
from headway.models.fetch import resolve_model
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner

ROOM_BYTES = 4 << 30
WAYS = ("computed", "host", "disk")


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each way, and what a step took at most meanwhile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args(argv)
    path = resolve_model(args.model)
    config = EngineConfig(model=args.model, model_path=str(path), max_context=args.tokens + 64)
    runner = load_runner(open_plan(path), config)
    print(
        f"{len(runner.read_block(0))} bytes a block of {runner.info.block_size} tokens, {args.runs} runs each"
    )
    with TemporaryDirectory(dir=args.folder) as folder:
        for way in args.ways:
            times, steps = _measure(runner, way, Path(folder), args)
            print(
                f"{way:9} ttft ms: median {median(times):7.1f}  min {min(times):7.1f}  max {max(times):7.1f}"
                f"   longest step {max(steps):6.1f} ms",
                flush=True,
            )


def _measure(
    runner: NativeRunner, way: str, folder: Path, args: argparse.Namespace
) -> tuple[list[float], list[float]]:
    clock, woken = MonotonicClock(), Event()
    files = BlockFiles(folder, "benchmark", ROOM_BYTES) if way == "disk" else None
    host = HostStore(ROOM_BYTES) if way == "host" else None
    tiers = Tiers(clock, JobThread(1 << 40), host, files)
    num_blocks = args.tokens // runner.info.block_size + 8
    info = msgspec.structs.replace(engine_info("benchmark", runner), num_blocks=num_blocks)
    limits = SchedulerConfig(max_draft_tokens=0, itl_target_s=None, policy="fcfs")
    engine = Engine(runner, limits, clock, info, tiers=tiers)
    engine.wake_with(woken.set)
    times, steps = [], []
    for number in range(args.runs):
        _serve(engine, woken, _request(2 * number, args.tokens, number))
        _serve(engine, woken, _request(2 * number + 1, args.tokens, 1000 + number))
        if files is not None:
            _wait_written(tiers)
            for path in folder.glob("kv-*/*") if args.cold else ():
                _forget(path)
        ttft_ms, step_ms = _serve(engine, woken, _request(2 * number, args.tokens, number))
        times.append(ttft_ms)
        steps.append(step_ms)
    if files is not None:
        _wait_written(tiers)
        files.close()
    return times, steps


def _request(number: int, num_tokens: int, start: int) -> Request:
    tokens = tuple((start * 7919 + index * 131) % 40_000 + 100 for index in range(num_tokens))
    greedy = SamplingParams(temperature=0.0)
    return Request(request_id=f"r{number}", token_ids=tokens, sampling=greedy, max_tokens=1)


def _serve(engine: Engine, woken: Event, request: Request) -> tuple[float, float]:
    """Return the time of its first token, and of the longest step, in ms."""
    clock = MonotonicClock()
    started_ns, longest_ns = clock.now_ns(), 0
    engine.handle(Submit(request))
    while engine.has_work:
        woken.clear()
        before_ns = clock.now_ns()
        if engine.step() is None:
            woken.wait()
        else:
            longest_ns = max(longest_ns, clock.now_ns() - before_ns)
    return (clock.now_ns() - started_ns) / 1e6, longest_ns / 1e6


def _wait_written(tiers: Tiers) -> None:
    written = Event()
    tiers._jobs.write(written.set, 0)
    written.wait()


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


if __name__ == "__main__":
    main()
