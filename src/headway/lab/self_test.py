"""What the client itself adds to what it measures, against a server that computes nothing and keeps a schedule.

    floor     streams whose tokens come one by one, each with the time at which the server wrote it: how much later it is
              stamped, which is the kernel's share and the client's
    capacity  the processor time that a token takes the client when they come about as fast as a core can take them, all that
              is recorded of it included
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
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.latency import intervals, lag_ns
from headway.lab.loader import LocalLoader
from headway.lab.model_list import ServedModel
from headway.lab.null_server import STAMP_DIGITS, Schedule
from headway.lab.run_options import RunOptions
from headway.lab.sample import Sample
from headway.lab.traffic import plan_traffic

STREAMS = 200
STREAM = Schedule(ttft_ns=20 * NS_PER_MS, itl_ns=20 * NS_PER_MS, num_tokens=200, stamped=True)
"""50 tokens a second, for four seconds."""
DENSE = Schedule(ttft_ns=20 * NS_PER_MS, itl_ns=8 * NS_PER_MS, num_tokens=250)
"""25,000 a second. Waking for a token takes longer than reading it, so that many at a time are cheaper than few."""
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
    """How much later than written tokens are stamped."""
    ttft_error_ms: float
    itl_error_ms: float
    """Of a request, medians: how much later its first token is stamped; how far its mean interval is from the server's."""
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
    streams, _ = await _streams(STREAM, on_sample)
    dense, cpu_ns = await _streams(DENSE, on_sample)
    async with null_server(ANSWER) as endpoint:
        starts = [index * NS_PER_S // RATE for index in range(RATE * RATE_DURATION_S)]
        answers, _ = await _offer(endpoint, starts, on_sample)
    late = [_late_ns(exchange) for exchange in streams]
    all_late_ms = np.sort(np.concatenate(late)) / NS_PER_MS
    sent_ns = sorted(exchange.stamps.dispatched_ns for exchange in answers)
    return SelfTest(
        floor_p50_ms=percentile(all_late_ms, 0.5),
        floor_p99_ms=percentile(all_late_ms, 0.99),
        ttft_error_ms=float(np.median([each[0] for each in late])) / NS_PER_MS,
        itl_error_ms=float(np.median([_itl_error_ns(exchange) for exchange in streams])) / NS_PER_MS,
        events_s=len(dense) * DENSE.num_tokens * NS_PER_S / cpu_ns,
        delivered_rate=(len(sent_ns) - 1) * NS_PER_S / (sent_ns[-1] - sent_ns[0]),
        rate_lag_p99_ms=percentile(np.sort([float(lag_ns(each)) for each in answers]), 0.99) / NS_PER_MS,
    )


async def _streams(schedule: Schedule, on_sample: Callable[[Sample], None]) -> tuple[Sequence[Exchange], int]:
    async with null_server(schedule) as endpoint:
        # Over a second, and evenly over the interval between two tokens: of streams that write in one instant the last one's
        # token waits for the others'. On connections that are open, as a server takes its time over a new one.
        apart_ns = NS_PER_S // STREAMS + schedule.itl_ns // STREAMS
        starts = [index * apart_ns for index in range(STREAMS)]
        return await _offer(endpoint, starts, on_sample, num_kept=STREAMS)


async def _offer(
    endpoint: Endpoint,
    offsets_ns: Sequence[int],
    on_sample: Callable[[Sample], None],
    *,
    num_kept: int = 0,
) -> tuple[Sequence[Exchange], int]:
    """Return the records, and the processor time that they took; `num_kept` connections are opened before."""
    num_requests = num_kept + len(offsets_ns)
    options = RunOptions(endpoint=endpoint, arrival="constant:1", num_requests=num_requests)
    traffic = replace(plan_traffic(options), model=ServedModel(name="null"))
    async with LocalLoader(traffic, on_sample) as loader:
        if num_kept:
            await loader.closed(num_kept, num_conversations=num_kept, duration_ns=None)
        cpu_ns = time.process_time_ns()
        offered = await loader.open(offsets_ns)
        cpu_ns = time.process_time_ns() - cpu_ns
    failed = [exchange.answer.failure for exchange in offered.exchanges if not exchange.ok]
    if failed:
        raise InternalError(f"{len(failed)} requests to the null server failed, the first with {failed[0]}.")
    return offered.exchanges, cpu_ns


def _written_ns(exchange: Exchange) -> Floats:
    """Return when the server wrote each token, as their texts say."""
    text = exchange.answer.content
    stamps = [text[start : start + STAMP_DIGITS] for start in range(0, len(text), STAMP_DIGITS)]
    return np.asarray([int(stamp) for stamp in stamps], dtype=np.float64)


def _late_ns(exchange: Exchange) -> Floats:
    came = np.asarray([event.at_ns for event in exchange.text_events], dtype=np.float64)
    return came - _written_ns(exchange)


def _itl_error_ns(exchange: Exchange) -> float:
    between = intervals(exchange).mean_ns
    assert between is not None
    return abs(between - float(np.diff(_written_ns(exchange)).mean()))


@asynccontextmanager
async def null_server(schedule: Schedule) -> AsyncIterator[Endpoint]:
    """Run a null server as a process of its own."""
    times = [
        f"--ttft-ms={schedule.ttft_ns / NS_PER_MS}",
        f"--itl-ms={schedule.itl_ns / NS_PER_MS}",
        f"--tokens={schedule.num_tokens}",
    ]
    if schedule.stamped:
        times.append("--stamped")
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
