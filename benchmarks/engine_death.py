"""How long streams stand still when the engine's process is killed, and whether their text is what it would have been.

    .venv/bin/python benchmarks/engine_death.py [--streams 1 8] [--repeat 3]

Each run starts a server, has it answer twice, and kills its engine in the middle of the second time. The gap is a
stream's longest interval between two events, the one that the kill lies in. Prints one JSON object; fails if a text differs.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import sys
import time
from itertools import pairwise

from serving import Server, prompt
from startup import child_of
from streams import Stream, chat_request, run_streams

NS_PER_S = 1e9


async def disturbed(server: Server, requests: list[bytes], kill_after_s: float) -> list[Stream]:
    """Run the streams, and kill the engine meanwhile."""
    streams = asyncio.create_task(run_streams("127.0.0.1", server.port, requests))
    await asyncio.sleep(kill_after_s)
    os.kill(child_of(server.pid), signal.SIGKILL)
    return await streams


def text(stream: Stream) -> bytes:
    """Return a stream's text as JSON has it; how many tokens an event brings depends on what was drafted."""
    return b"".join(re.findall(rb'"content":"((?:[^"\\]|\\.)*)"', stream.body))


def measure(args: argparse.Namespace, num_streams: int) -> list[float]:
    """Return each stream's gap in seconds."""
    server = Server(args.model, ["--weights", args.weights])
    try:
        salt = f"{time.time_ns()}"
        requests = [
            chat_request("127.0.0.1", args.model, prompt(index, salt), args.output_tokens)
            for index in range(num_streams)
        ]
        before = asyncio.run(run_streams("127.0.0.1", server.port, requests))
        first_ns = min(stream.event_ns[0] for stream in before)
        lasted_s = (max(stream.event_ns[-1] for stream in before) - first_ns) / NS_PER_S
        after = asyncio.run(disturbed(server, requests, lasted_s / 2))
    finally:
        server.stop()
    for one, other in zip(before, after, strict=True):
        if text(one) != text(other):
            raise RuntimeError(f"a stream's text is another one: {text(one)!r} and {text(other)!r}")
    return [max(b - a for a, b in pairwise(stream.event_ns)) / NS_PER_S for stream in after]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the engine's death costs streams.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=("bf16", "int8"), default="int8")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--output-tokens", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    report: dict[str, object] = {"cpus": len(os.sched_getaffinity(0)), "output_tokens": args.output_tokens}
    for num_streams in args.streams:
        runs = [measure(args, num_streams) for _ in range(args.repeat)]
        gaps = [gap for run in runs for gap in run]
        report[f"{num_streams} streams"] = {
            "gap_s": {"median": round(statistics.median(gaps), 2), "max": round(max(gaps), 2)},
            "runs_s": [[round(gap, 2) for gap in run] for run in runs],
        }
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
