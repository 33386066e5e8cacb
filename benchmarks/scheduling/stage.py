"""What a cell works with: servers that have read the tenants' files, and a capacity to take shares of."""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endpoints.process import ServerFailed, running
from endpoints.servers import Server, headway
from scheduling.mix import Stream, mix, reading
from scheduling.offer import Run, offer

BURST_RATE = 30.0
"""Requests per second: more than any server here answers, so that it is never without work."""
BURST_SECONDS = 5.0
NUM_BURSTS = 5
PATIENT_MS = 600_000
"""A deadline that nothing misses: for cells in which nobody is to be refused."""


@dataclass(slots=True)
class Stage:
    """Owns the count of a server's runs. `scale` multiplies how long cells offer load."""

    command: str
    threads: int
    slots: int
    scale: float
    logs: Path
    record: Callable[[str, dict[str, Any]], None]
    """Keeps a case by its name."""
    known: Callable[[str], dict[str, Any] | None]
    """Returns a case that was kept."""
    num_runs: int = field(default=0)

    @contextmanager
    def headway(self, *options: str, reads: bool = True) -> Iterator[int]:
        """Serve with these options; yield the port. `reads`: whether it is to read the tenants' files first."""
        common = ("--max-num-seqs", str(self.slots), "--trust-headers")
        with self.serving(headway(self.command, self.threads, (*common, *options)), reads=reads) as port:
            yield port

    @contextmanager
    def serving(self, server: Server, *, reads: bool = True) -> Iterator[int]:
        """Serve; yield the port once it is up and, if it `reads`, every tenant's file has been read."""
        say(f"  starting {server.shown()}")
        with running(server, self.logs / f"server-{server.name}.log") as port:
            self.num_runs = 0
            if reads:
                read_files(port, server.name)
            yield port

    def offer(
        self, port: int, name: str, streams: Sequence[Stream], seconds: float, *, each: str | None = None
    ) -> Run:
        """Offer `streams` and say in a line how it went; `each` as in `offer.offer`."""
        run = offer(port, streams, seconds=seconds, each=each)
        self.num_runs += 1
        found = run["all"]
        say(
            f"  {name}: {found['offered']} offered, {found['admitted']} admitted, {found['ok']} answered, TTFT p95 "
            f"{found['ttft_ms']['p95']} ms, ITL p99 {found['itl_ms']['p99']} ms, {run['duration_s']:.0f} s"
        )
        return run

    def mix(self, rate: float, seconds: float, **named: Any) -> list[Stream]:
        """Return the mix with prompts that the server that runs has not seen, unless `run` says which ones."""
        return mix(rate, seconds, **{"run": self.num_runs, **named})

    def seconds(self, usual: float) -> float:
        """Return how long a load is offered that usually is for so long."""
        return usual * self.scale

    def capacity(self) -> float:
        """Return how many requests of the mix per second Headway answers when it has more than enough; measured once.

        The median of some bursts: all shares follow from it, and neighbours made one a quarter faster than the next minutes.
        """
        case = self.known("capacity")
        if case is None:
            with self.headway() as port:
                runs = {f"burst {number}": self.burst(port) for number in range(1, NUM_BURSTS + 1)}
            case = {"runs": runs, "rate": statistics.median(run["answered_rate"] for run in runs.values())}
            self.record("capacity", case)
        rate: float = case["rate"]
        return rate

    def burst(self, port: int, rate: float = BURST_RATE) -> Run:
        """Offer more than the server can do, and wait until it has done it; never shorter: all rates follow from it."""
        streams = self.mix(rate, BURST_SECONDS, ttft_ms=PATIENT_MS)
        return self.offer(port, "capacity", streams, BURST_SECONDS)


def read_files(port: int, name: str) -> None:
    """Have every tenant's file read, one after another; raises ServerFailed where one was not."""
    for stream in reading():
        read = offer(port, [stream], seconds=0)["all"]
        if read["ok"] < read["offered"]:
            raise ServerFailed(f"{name} did not read a file: {', '.join(read['errors'])}")


def say(text: str) -> None:
    """Tell how it goes on standard error."""
    print(text, file=sys.stderr, flush=True)
