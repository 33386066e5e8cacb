"""How long a newcomer waits: from the start of `headway serve` to its first answer, with the model in the file cache.

    .venv/bin/python benchmarks/startup.py [--model smollm2] [--repeat 5]

Prints one JSON object: seconds until the address is printed, seconds until the first token of a first request has arrived,
and the resident memory of both processes then, in MB.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import time
from pathlib import Path

from serving import Server
from streams import chat_request, run_streams

NS_PER_S = 1e9


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (1e6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


def child_of(pid: int) -> int:
    """Return the process id of the engine that a server started."""
    return int(
        subprocess.run(["pgrep", "-P", str(pid)], check=True, capture_output=True, text=True).stdout.split()[
            0
        ]
    )


def measure(model: str, options: list[str]) -> dict[str, float]:
    """Start a server, ask once, stop it."""
    started_ns = time.monotonic_ns()
    server = Server(model, options)
    ready_ns = time.monotonic_ns()
    try:
        request = chat_request("127.0.0.1", model, "Hello!", 8)
        (stream,) = asyncio.run(run_streams("127.0.0.1", server.port, [request]))
        return {
            "ready_s": (ready_ns - started_ns) / NS_PER_S,
            "first_token_s": (stream.event_ns[0] - started_ns) / NS_PER_S,
            "gateway_mb": resident_mb(server.pid),
            "engine_mb": resident_mb(child_of(server.pid)),
        }
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure start-up.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    runs = [measure(args.model, []) for _ in range(args.repeat)]
    report = {
        key: {
            "median": round(statistics.median(run[key] for run in runs), 3),
            "runs": [round(run[key], 3) for run in runs],
        }
        for key in runs[0]
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
