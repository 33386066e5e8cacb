"""Runs the cases, by turns, and sums up what they took."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from gateway_overhead.callers import make_tokens
from gateway_overhead.cases import CASES, IDLE, NULL, Case
from gateway_overhead.idle import idle_bytes
from gateway_overhead.load import BODY_BYTES, NUM_EVENTS, CannotKeepUp, Timing, offer, raw_answer, request
from gateway_overhead.processes import Process, running
from headway.core.clock import NS_PER_MS
from headway.lab.distribution import percentile

SERVER_CORE: Final = 0
CLIENT_CORE: Final = 1
NUM_CALLERS: Final = 50
NUM_IDLE: Final = 2000
WARM_UP_S: Final = 1.0
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


class Found:
    """What was measured of one case at one rate, all rounds together."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.timings: list[Timing] = []
        self.cpu_s = 0.0

    async def add(self, server: Process, requests: Sequence[bytes], seconds: float) -> None:
        """Measure for a while; where the server cannot keep up, anew at half the rate, in this round and the others."""
        while True:
            try:
                await offer(server.port, requests, self.rate, WARM_UP_S)
                before_s = server.cpu_s()
                timings = await offer(server.port, requests, self.rate, seconds)
            except CannotKeepUp:
                self.rate //= 2
                self.timings.clear()
                self.cpu_s = 0.0
            else:
                self.timings += timings
                self.cpu_s += server.cpu_s() - before_s
                return

    def figures(self) -> dict[str, Any]:
        """Return it as JSON's types; times in milliseconds."""
        return {
            "rate": self.rate,
            "requests": len(self.timings),
            "first_ms": _percentiles([timing.first_ns for timing in self.timings]),
            "last_ms": _percentiles([timing.last_ns for timing in self.timings]),
            "late_ms": _percentiles([timing.late_ns for timing in self.timings]),
            "cpu_ms": round(self.cpu_s / len(self.timings) * 1000, 4),
        }


def _percentiles(values_ns: Sequence[int]) -> dict[str, float]:
    ordered = np.sort(np.asarray(values_ns, dtype=np.float64)) / NS_PER_MS
    return {name: round(percentile(ordered, share), 4) for name, share in _SHARES.items()}


async def measure(rate: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return every case's figures. Rounds have servers and logs of their own."""
    found = {name: Found(rate) for name in (NULL, *(case.name for case in CASES))}
    with TemporaryDirectory() as name:
        folder = Path(name)
        store, answer = folder / "tokens.sqlite3", folder / "answer"
        tokens = await make_tokens(store, NUM_CALLERS)
        async with running(
            "gateway_overhead.server", *CASES[0].arguments(SERVER_CORE, store, folder)
        ) as server:
            answer.write_bytes(await raw_answer(server.port, request(None, resumable=False)))
        for _ in range(rounds):
            async with running("gateway_overhead.null", "--core", str(SERVER_CORE), str(answer)) as server:
                await found[NULL].add(server, [request(None, resumable=False)], seconds)
            for case in CASES:
                async with _serving(case, store) as server:
                    await found[case.name].add(server, _requests(case, tokens), seconds)
        idle: dict[str, dict[str, int]] = {}
        for kind, case in IDLE.items():
            idle[kind] = {}
            for begun in (False, True):
                async with _serving(case, store) as server:
                    taken = await idle_bytes(
                        server, tokens, NUM_IDLE, begun=begun, resumable=case.streams is not None
                    )
                idle[kind]["begun" if begun else "queued"] = round(taken)
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


@asynccontextmanager
async def _serving(case: Case, store: Path) -> AsyncIterator[Process]:
    with TemporaryDirectory() as folder:
        async with running(
            "gateway_overhead.server", *case.arguments(SERVER_CORE, store, Path(folder))
        ) as server:
            yield server


def _requests(case: Case, tokens: Sequence[str]) -> list[bytes]:
    resumable = case.streams is not None
    return [request(token, resumable=resumable) for token in (tokens if case.asks else [None])]
