"""What serving costs the engine: the median step under 64 streaming clients against the same step offline.

    make bench-serving [BENCH_ARGS="--clients 64 --repeat 5"]

Offline: an engine in a process of its own decodes the same 64 prompts, with no gateway and no clients on the machine.
Serving: `headway serve` with the same settings, and 64 plain HTTP streams from one light client on the same machine. There
a step is what a client sees of it: the interval between two tokens of a stream while all streams decode, so gateway,
sockets and whatever the client takes from the engine count. Runs alternate; the ratio is that of the medians over all runs.
Prints one JSON object, with every run's median, and fails if the ratio exceeds the limit.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from itertools import pairwise

from endpoints.process import leave_on_sigterm
from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.build import build_engine
from headway.models.fetch import resolve_model
from offline import decode_steps_ns
from streams import Stream, chat_request, run_streams

NS_PER_MS = 1e6
START_TIMEOUT_S = 60


def prompt(index: int, salt: str) -> str:
    """Return a prompt of about 40 tokens that shares no KV block with any other."""
    return f"({salt}, number {index}) Explain, step by step, how a program sorts a list of numbers."


def offline_steps_ms(args: argparse.Namespace, num_prompt_tokens: int) -> list[float]:
    """Measure in a process of its own, so that memory and threads are as in an engine process."""
    command = [sys.executable, __file__, "--offline-worker", str(num_prompt_tokens), *engine_args(args)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return list(json.loads(result.stdout))


def offline_worker(args: argparse.Namespace) -> None:
    """Decode `--clients` sequences and print the steps' durations in ms."""
    config = EngineConfig(
        model=args.model,
        model_path=str(resolve_model(args.model)),
        weights=args.weights,
        threads=args.threads,
        scheduler=SchedulerConfig(itl_target_s=None),
    )
    engine = build_engine(config, MonotonicClock())
    for index in range(args.clients):
        tokens = tuple(
            100 + (index * 7919 + position * 104729) % 40000 for position in range(args.offline_worker)
        )
        request = Request(
            request_id=str(index),
            token_ids=tokens,
            sampling=SamplingParams(temperature=0.0),
            max_tokens=args.output_tokens,
        )
        engine.handle(Submit(request))
    steps, _ = decode_steps_ns(engine, args.clients)
    json.dump([step / NS_PER_MS for step in steps], sys.stdout)


class Server:
    """`headway serve` on a free port."""

    def __init__(self, model: str, options: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headway.cli.main", "serve", model, "--port", str(self.port)),
                *("--log-level", "warning", *options),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        try:
            started = "Headway serves" in self._process.stdout.readline()
        except BaseException:  # whoever ends the benchmark while it waits
            self._process.terminate()
            raise
        if not started:
            raise RuntimeError("the server did not start")

    def stop(self) -> None:
        """Drain it and check that it ended well."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(timeout=START_TIMEOUT_S) != 0:
            raise RuntimeError(f"the server ended with status {self._process.returncode}")


def serving_steps_ms(args: argparse.Namespace, salt: str) -> tuple[list[float], int]:
    """Return the intervals between tokens while every stream decodes, and the prompts' length in tokens."""
    threads = ["--threads", str(args.threads)] if args.threads else []
    # No target: with one, 64 streams that fill a step let prompts in so slowly that the first end before the last begin.
    server = Server(args.model, ["--weights", args.weights, "--itl-target", "none", *threads])
    try:
        requests = [
            chat_request("127.0.0.1", args.model, prompt(index, salt), args.output_tokens)
            for index in range(args.clients)
        ]
        streams = asyncio.run(run_streams("127.0.0.1", server.port, requests))
    finally:
        server.stop()
    lengths = [len(stream.event_ns) for stream in streams]
    if min(lengths) < 2:
        raise RuntimeError(f"a stream brought {min(lengths)} events: {bytes(streams[0].body[:500])!r}")
    first_all = max(stream.event_ns[0] for stream in streams)
    last_all = min(stream.event_ns[-1] for stream in streams)
    return steps_between(streams, first_all, last_all), prompt_tokens(streams[0])


def steps_between(streams: list[Stream], from_ns: int, to_ns: int) -> list[float]:
    """Return all intervals, in ms, of all streams within the window."""
    return [
        (after - before) / NS_PER_MS
        for stream in streams
        for before, after in pairwise(stream.event_ns)
        if before >= from_ns and after <= to_ns
    ]


def prompt_tokens(stream: Stream) -> int:
    """Return the prompt's length from the usage of the stream."""
    found = re.search(rb'"prompt_tokens":(\d+)', stream.body)
    if found is None:
        raise RuntimeError("the stream brought no usage")
    return int(found[1])


def engine_args(args: argparse.Namespace) -> list[str]:
    """Return the options that both sides share, for the offline worker."""
    shared = ["--model", args.model, "--weights", args.weights, "--clients", str(args.clients)]
    shared += ["--output-tokens", str(args.output_tokens)]
    return shared + (["--threads", str(args.threads)] if args.threads else [])


def main() -> int:
    leave_on_sigterm()
    parser = argparse.ArgumentParser(description="Measure what serving costs the engine.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=("bf16", "int8"), default="int8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.25, help="largest ratio that passes")
    parser.add_argument("--offline-worker", type=int, metavar="PROMPT_TOKENS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.offline_worker:
        offline_worker(args)
        return 0
    serving: list[float] = []
    offline: list[float] = []
    for repeat in range(args.repeat):
        steps, num_prompt_tokens = serving_steps_ms(args, f"run {repeat} at {time.time_ns()}")
        serving.append(statistics.median(steps))
        offline.append(statistics.median(offline_steps_ms(args, num_prompt_tokens)))
        print(
            f"run {repeat + 1}: serving {serving[-1]:.1f} ms, offline {offline[-1]:.1f} ms", file=sys.stderr
        )
    ratio = statistics.median(serving) / statistics.median(offline)
    report = {
        "settings": {"clients": args.clients, "output_tokens": args.output_tokens, "weights": args.weights},
        "cpus": len(os.sched_getaffinity(0)),
        "serving_step_ms": {
            "median": round(statistics.median(serving), 2),
            "runs": [round(x, 2) for x in serving],
        },
        "offline_step_ms": {
            "median": round(statistics.median(offline), 2),
            "runs": [round(x, 2) for x in offline],
        },
        "ratio": round(ratio, 3),
        "limit": args.limit,
    }
    print(json.dumps(report, indent=2))
    return 0 if ratio <= args.limit else 1


if __name__ == "__main__":
    sys.exit(main())
