"""What the gateway costs: `make bench-gateway` [BENCH_ARGS="--rounds 1 --seconds 2 --print"].

Takes about three minutes and needs two cores that nothing else uses: the server has one, the client the other. Writes
bench/results/DATE-gateway.json and the table of docs/performance.md; with `--print` it writes nothing and prints the table.
"""

import argparse
import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from gateway_overhead.callers import make_tokens
from gateway_overhead.idle import idle_bytes
from gateway_overhead.load import BODY_BYTES, NUM_EVENTS, Timing, offer, raw_answer, request
from gateway_overhead.processes import Process, running
from gateway_overhead.render import BEGIN, END, render
from headway.core.clock import NS_PER_MS
from headway.lab.distribution import percentile
from peers.places import DOCUMENT, RESULTS, ROOT
from peers.render import replace_table

SERVER_CORE: Final = 0
CLIENT_CORE: Final = 1
NUM_CALLERS: Final = 50
NUM_IDLE: Final = 2000
WARM_UP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """A way to be served. `streams`: where resumable ones are kept; None = they are not."""

    name: str
    asks: bool
    streams: str | None = None


CASES: Final = (
    Case("plain", asks=False),
    Case("with tokens and limits", asks=True),
    Case("and resumable, in memory", asks=True, streams="memory"),
    Case("and resumable, in SQLite", asks=True, streams="streams.sqlite3"),
)
NULL: Final = "null server"


@dataclass(slots=True)
class Found:
    """What was measured of one case, all rounds together."""

    timings: list[Timing]
    cpu_s: float = 0.0
    failure: str | None = None

    def figures(self) -> dict[str, Any]:
        """Return it as JSON's types; times in milliseconds."""
        if self.failure is not None:
            return {"failure": self.failure}
        first = sorted(timing.first_ns / NS_PER_MS for timing in self.timings)
        last = sorted(timing.last_ns / NS_PER_MS for timing in self.timings)
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
        return {
            "requests": len(self.timings),
            "first_ms": {name: round(percentile(first, share), 4) for name, share in shares.items()},
            "last_ms": {name: round(percentile(last, share), 4) for name, share in shares.items()},
            "cpu_ms": round(self.cpu_s / len(self.timings) * 1000, 4),
        }


async def measure(rate: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return every case's figures; rounds take turns, each with servers of its own."""
    found: dict[str, Found] = defaultdict(lambda: Found([]))
    idle: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "tokens.sqlite3"
        tokens = await make_tokens(store, NUM_CALLERS)
        async with running("gateway_overhead.server", "--core", str(SERVER_CORE)) as server:
            answer = folder / "answer"
            answer.write_bytes(await raw_answer(server.port, request(None, resumable=False)))
        for number in range(rounds):
            async with running("gateway_overhead.null", "--core", str(SERVER_CORE), str(answer)) as server:
                await _add(found[NULL], server, [request(None, resumable=False)], rate, seconds)
            for case in CASES:
                async with running("gateway_overhead.server", *_arguments(case, store, folder, number)) as server:
                    data = [
                        request(token, resumable=case.streams is not None)
                        for token in (tokens if case.asks else [None])
                    ]
                    await _add(found[case.name], server, data, rate, seconds)
        for resumable in (False, True):
            for begun in (False, True):
                case = CASES[2 if resumable else 1]
                async with running("gateway_overhead.server", *_arguments(case, store, folder, 0)) as server:
                    taken = await idle_bytes(server, tokens, NUM_IDLE, begun=begun, resumable=resumable)
                kind = idle.setdefault("resumable" if resumable else "plain", {})
                kind["begun" if begun else "queued"] = round(taken)
    return {
        "rate": rate,
        "seconds": seconds,
        "rounds": rounds,
        "events": NUM_EVENTS,
        "body_bytes": BODY_BYTES,
        "callers": NUM_CALLERS,
        "cases": {name: each.figures() for name, each in found.items()},
        "idle_streams": NUM_IDLE,
        "idle_bytes": idle,
    }


def _arguments(case: Case, store: Path, folder: Path, number: int) -> Sequence[str]:
    place = case.streams or "memory"
    return (
        *("--core", str(SERVER_CORE)),
        *(("--tokens", str(store)) if case.asks else ()),
        *("--streams", place if place == "memory" else str(folder / f"{number}-{place}")),
    )


async def _add(found: Found, server: Process, requests: Sequence[bytes], rate: int, seconds: float) -> None:
    """Measure for a while, unless the case has failed before: then the other rounds would say nothing."""
    if found.failure is not None:
        return
    try:
        await offer(server.port, requests, rate, WARM_UP_S)
        before_s = server.cpu_s()
        found.timings += await offer(server.port, requests, rate, seconds)
        found.cpu_s += server.cpu_s() - before_s
    except RuntimeError as error:
        found.failure = str(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="gateway_overhead", description="What the gateway itself costs.")
    parser.add_argument("--rate", type=int, default=500, help="requests a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each case and round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="another file; then the document stays as it is")
    parser.add_argument("--print", action="store_true", help="print the table and write nothing")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    data: Mapping[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        **asyncio.run(measure(args.rate, args.seconds, args.rounds)),
    }
    if args.print:
        print(render(data, "not written"))
        return
    path = args.out or RESULTS / f"{data['date']}-gateway.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    if args.out is None:
        replace_table(DOCUMENT, render(data, str(path.relative_to(ROOT))), BEGIN, END)


if __name__ == "__main__":
    main()
