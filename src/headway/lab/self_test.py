"""What the client itself adds to what it measures, against a server that computes nothing and keeps a schedule.

    floor     streams whose tokens come one by one: how much later than scheduled they are stamped, which is the lateness of
              server, network and client together, so the client's at most
    capacity  the processor time that a token of these takes the client, all that is recorded of it included
    delivery  requests at a rate: whether they start as often, and when, they should

The server is a process of its own on the same machine, so on a busy machine, or one of a single core, the figures are worse
than the client is.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import InternalError
from headway.lab.distribution import Floats, percentile
from headway.lab.drive import Offered
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.latency import intervals, lag_ns, ttft_ns
from headway.lab.loader import LocalLoader
from headway.lab.model_list import ServedModel
from headway.lab.null_server import Schedule
from headway.lab.run_options import RunOptions
from headway.lab.sample import Sample
from headway.lab.traffic import plan_traffic

STREAMS = 200
STREAM = Schedule(ttft_ns=20 * NS_PER_MS, itl_ns=20 * NS_PER_MS, num_tokens=200)
"""50 tokens a second, for four seconds."""
RATE = 500
RATE_DURATION_S = 30
ANSWER = Schedule(ttft_ns=5 * NS_PER_MS, itl_ns=0, num_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One thing that a client worth believing keeps."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether it is."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What was found; times in milliseconds."""

    floor_p50_ms: float
    floor_p99_ms: float
    """How late tokens are stamped."""
    ttft_error_ms: float
    itl_error_ms: float
    """Medians, less what was scheduled; without a sign."""
    events_s: float
    """Tokens that a core stamps and records in a second, one by one."""
    delivered_rate: float
    rate_lag_p99_ms: float

    def limits(self) -> Sequence[Limit]:
        """Return what is asked of it."""
        return (
            Limit(name="floor p99, ms", value=self.floor_p99_ms, limit=1.0),
            Limit(name="TTFT off by (p50), ms", value=self.ttft_error_ms, limit=0.2),
            Limit(name="ITL off by (p50), ms", value=self.itl_error_ms, limit=0.2),
            Limit(name="tokens/s a core", value=self.events_s, limit=30_000, at_least=True),
            Limit(
                name=f"{RATE} requests/s off by, share",
                value=abs(self.delivered_rate / RATE - 1),
                limit=0.01,
            ),
        )

    @property
    def passed(self) -> bool:
        """Whether all limits are kept."""
        return all(limit.kept for limit in self.limits())


async def self_test(on_sample: Callable[[Sample], None] = lambda _: None) -> SelfTest:
    """Measure this client, in about 40 s; `on_sample` is what a run would call, and its cost is the client's."""
    async with null_server(STREAM) as endpoint:
        # Spread over one interval: of streams that start in one instant the last token waits for the others' writes.
        starts = [index * STREAM.itl_ns // STREAMS for index in range(STREAMS)]
        cpu_ns = time.process_time_ns()
        streams = await _offer(endpoint, starts, on_sample)
        cpu_ns = time.process_time_ns() - cpu_ns
    async with null_server(ANSWER) as endpoint:
        starts = [index * NS_PER_S // RATE for index in range(RATE * RATE_DURATION_S)]
        answers = await _offer(endpoint, starts, on_sample)
    late = np.sort(np.concatenate([_late_ms(exchange, STREAM) for exchange in streams]))
    sent_ns = sorted(exchange.stamps.dispatched_ns for exchange in answers)
    return SelfTest(
        floor_p50_ms=percentile(late, 0.5),
        floor_p99_ms=percentile(late, 0.99),
        ttft_error_ms=abs(_median([ttft_ns(each) for each in streams]) - STREAM.ttft_ns) / NS_PER_MS,
        itl_error_ms=abs(_median([intervals(each).mean_ns for each in streams]) - STREAM.itl_ns) / NS_PER_MS,
        events_s=len(late) * NS_PER_S / cpu_ns,
        delivered_rate=(len(sent_ns) - 1) * NS_PER_S / (sent_ns[-1] - sent_ns[0]),
        rate_lag_p99_ms=percentile(np.sort([float(lag_ns(each)) for each in answers]), 0.99) / NS_PER_MS,
    )


async def _offer(
    endpoint: Endpoint, offsets_ns: Sequence[int], on_sample: Callable[[Sample], None]
) -> Sequence[Exchange]:
    options = RunOptions(endpoint=endpoint, arrival="constant:1", num_requests=len(offsets_ns))
    traffic = replace(plan_traffic(options), model=ServedModel(name="null"))
    async with LocalLoader(traffic, on_sample) as loader:
        offered: Offered = await loader.open(offsets_ns)
    failed = [exchange.answer.failure for exchange in offered.exchanges if not exchange.ok]
    if failed:
        raise InternalError(f"{len(failed)} requests to the null server failed, the first with {failed[0]}.")
    return offered.exchanges


def _late_ms(exchange: Exchange, schedule: Schedule) -> Floats:
    written_ns = exchange.stamps.written_ns
    assert written_ns is not None
    came = np.asarray([event.at_ns for event in exchange.text_events], dtype=np.float64)
    due = [written_ns + schedule.due_ns(token) for token in range(schedule.num_tokens)]
    return (came - np.asarray(due, dtype=np.float64)) / NS_PER_MS


def _median(figures: Sequence[float | None]) -> float:
    return float(np.median([figure for figure in figures if figure is not None]))


@asynccontextmanager
async def null_server(schedule: Schedule) -> AsyncIterator[Endpoint]:
    """Run a null server as a process of its own."""
    times = [
        f"--ttft-ms={schedule.ttft_ns / NS_PER_MS}",
        f"--itl-ms={schedule.itl_ns / NS_PER_MS}",
        f"--tokens={schedule.num_tokens}",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headway.lab.null_server",
        *times,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise InternalError("The null server did not start.")
        yield Endpoint(host="127.0.0.1", port=int(line), path="/v1")
    finally:
        process.stdin.close()
        await process.wait()
