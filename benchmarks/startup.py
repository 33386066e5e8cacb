"""How long a newcomer waits, and what memory stays: from the start of `headway serve` to its first answer.

    .venv/bin/python benchmarks/startup.py [--model smollm2] [--weights int8] [--repeat 5]

The model lies in the file cache. Prints one JSON object: seconds until the address is printed, seconds until the first token
of a first request has arrived, and the resident memory of both processes then, in MB of 1e6 bytes. Fails beyond
`--limit-s`, and if the processes hold more than weights in their runtime format + KV cache + 200 MB + 5 % of the weights,
or the engine any page of the model's files. The KV cache is kept small, so that it cannot hide anything.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from headway.models.architectures import open_plan
from headway.models.fetch import resolve_model
from headway.models.sources import served_name
from headway.runner.estimate import memory_needs
from serving import Server
from streams import chat_request, run_streams

NS_PER_S = 1e9
KV_MB = 32
PROCESSES_MB = 200
WEIGHTS_SHARE = 0.05


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (1e6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


def resident_file_mb(pid: int, files: tuple[Path, ...]) -> float:
    """Return how much of `files` a process holds in memory, in MB: the Rss of their mappings (proc(5), smaps)."""
    names = {str(file.resolve()) for file in files}
    num_kib, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if "-" in fields[0]:  # a mapping begins: address, permissions, offset, device, inode, path
            counts = len(fields) == 6 and fields[5] in names
        elif counts and fields[0] == "Rss:":
            num_kib += int(fields[1])
    return num_kib * 1024 / 1e6


def child_of(pid: int) -> int:
    """Return the process id of the engine that a server started."""
    done = subprocess.run(["pgrep", "-P", str(pid)], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def measure(model: str, weights: str, files: tuple[Path, ...]) -> dict[str, float]:
    """Start a server, ask once, stop it."""
    started_ns = time.monotonic_ns()
    server = Server(model, ["--weights", weights, "--kv-memory", f"{KV_MB * 10**6}"])
    ready_ns = time.monotonic_ns()
    try:
        request = chat_request("127.0.0.1", served_name(model), "Hello!", 8)
        (stream,) = asyncio.run(run_streams("127.0.0.1", server.port, [request]))
        engine = child_of(server.pid)
        return {
            "ready_s": (ready_ns - started_ns) / NS_PER_S,
            "first_token_s": (stream.event_ns[0] - started_ns) / NS_PER_S,
            "gateway_mb": resident_mb(server.pid),
            "engine_mb": resident_mb(engine),
            "model_file_mb": resident_file_mb(engine, files),
        }
    finally:
        server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure start-up.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=("bf16", "int8"), default="int8")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--limit-s", type=float, default=1.5, help="longest wait for the first token that passes"
    )
    args = parser.parse_args()
    plan = open_plan(resolve_model(args.model))
    weights_mb = memory_needs(plan.shape, group_size=32).weight_bytes[args.weights] / 1e6
    limit_mb = weights_mb * (1 + WEIGHTS_SHARE) + KV_MB + PROCESSES_MB
    runs = [measure(args.model, args.weights, plan.files) for _ in range(args.repeat)]
    report = {
        key: {
            "median": round(statistics.median(run[key] for run in runs), 3),
            "runs": [round(run[key], 3) for run in runs],
        }
        for key in runs[0]
    }
    most_mb = max(run["gateway_mb"] + run["engine_mb"] for run in runs)
    wait_s = statistics.median(run["first_token_s"] for run in runs)
    bounds = {
        "weights_mb": round(weights_mb, 1),
        "kv_mb": KV_MB,
        "both_mb": round(most_mb, 1),
        "limit_mb": round(limit_mb, 1),
        "limit_s": args.limit_s,
    }
    print(json.dumps(report | bounds, indent=2))
    held = max(run["model_file_mb"] for run in runs)
    return 0 if most_mb <= limit_mb and held == 0 and wait_s <= args.limit_s else 1


if __name__ == "__main__":
    sys.exit(main())
