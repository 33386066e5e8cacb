"""What a log of resumable streams costs: memory for an idle stream, time for a step in which every stream gets an event.

    python benchmarks/stream_logs.py [memory | FILE | redis://HOST:PORT/DB] [NUM_STREAMS]

An idle stream has a record, a meta of 1 KB, its writer, one follower that waits and one WebSocket's delivery. A step appends
one event of 200 bytes and 20 of progress to each of 64 streams at once, and every follower reads it and acknowledges.
"""

import asyncio
import gc
import secrets
import sys
import time
from pathlib import Path

from headway.core.clock import MonotonicClock
from headway.streams.delivery import Delivery
from headway.streams.follower import Follower
from headway.streams.ids import new_stream_id
from headway.streams.limits import StreamLimits
from headway.streams.log import StreamLog
from headway.streams.places import open_log
from headway.streams.record import Entry
from headway.streams.writer import StreamWriter

STEP_STREAMS = 64
NUM_STEPS = 300
EVENT = Entry("content", b"x" * 200)


def resident_bytes() -> int:
    gc.collect()
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


class Stream:
    """One stream with everything that holds it."""

    def __init__(self, log: StreamLog, writer: StreamWriter, stream_id: str) -> None:
        self.log = log
        self.writer = writer
        self.stream_id = stream_id
        self.follower = Follower(log, stream_id, 1, 0)
        self.delivery = Delivery()
        self.delivery.attach(0, 0)
        self.reading = asyncio.ensure_future(self.follower.next_page())

    async def step(self) -> None:
        """Write an event, read it, acknowledge it."""
        await self.writer.write([EVENT], b"p" * 20)
        page = await self.reading
        await self.log.ack(self.stream_id, 1, page.events[-1].seq)
        self.reading = asyncio.ensure_future(self.follower.next_page())


async def begin(log: StreamLog) -> Stream:
    stream_id = new_stream_id(secrets.token_bytes)
    lease = await log.create(stream_id, "tok_0123456789ab", secrets.token_bytes(1024))
    return Stream(log, StreamWriter(log, lease, 0, clock=MonotonicClock()), stream_id)


async def measure(place: str, num_streams: int) -> None:
    log = await open_log(place, StreamLimits(), lambda: int(time.time() * 1000))
    await begin(log)
    before = resident_bytes()
    streams = [await begin(log) for _ in range(num_streams)]
    await asyncio.sleep(0.1)
    print(
        f"{place}: {(resident_bytes() - before) / num_streams / 1024:.1f} KB for an idle stream, of {num_streams}"
    )
    times = []
    began_cpu = time.process_time()
    for _ in range(NUM_STEPS):
        began = time.perf_counter()
        await asyncio.gather(*(stream.step() for stream in streams[:STEP_STREAMS]))
        times.append(time.perf_counter() - began)
    cpu_us = (time.process_time() - began_cpu) / NUM_STEPS / STEP_STREAMS * 1e6
    times.sort()
    median, last = times[NUM_STEPS // 2] * 1000, times[int(NUM_STEPS * 0.99)] * 1000
    print(f"{place}: {median:.2f} ms for a step of {STEP_STREAMS} streams (99 %: {last:.2f} ms)", end=", ")
    print(f"{cpu_us:.0f} us of CPU a stream")
    for stream in streams:
        stream.reading.cancel()
    await log.close()


if __name__ == "__main__":
    asyncio.run(
        measure(
            sys.argv[1] if len(sys.argv) > 1 else "memory", int(sys.argv[2]) if len(sys.argv) > 2 else 2000
        )
    )
