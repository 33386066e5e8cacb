"""Every log of streams behind one harness, for the tests that hold all of them to one contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.streams.limits import StreamLimits
from headway.streams.log import StreamLog
from headway.streams.memory_log import MemoryLog
from headway.streams.sqlite_log import SqliteLog
from support.redis_server import needs_redis, redis_server

KINDS = ("memory", "sqlite", pytest.param("redis", marks=needs_redis))


@dataclass
class WallClock:
    """Wall-clock milliseconds that only a test moves."""

    ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class Gateways:
    """Two gateways on the same streams; where a log is for one process, both are one."""

    one: StreamLog
    two: StreamLog
    clock: WallClock


LIMITS = StreamLimits(
    max_events=4, max_bytes=100, max_total_events=8, max_total_bytes=200, max_streams=5,
    ttl_ms=1000, settle_ms=1, remembered_ms=5000, lease_ms=300,
)  # fmt: skip


@asynccontextmanager
async def open_gateways(kind: str, folder: Path, limits: StreamLimits = LIMITS) -> AsyncIterator[Gateways]:
    clock = WallClock()
    if kind == "redis":
        from headway.streams.redis_log import RedisLog

        with redis_server(folder) as server:
            one = await RedisLog.open(server.url, limits, clock)
            two = await RedisLog.open(server.url, limits, clock)
            yield Gateways(one, two, clock)
            await one.close()
            await two.close()
    else:
        log: StreamLog = MemoryLog(limits, clock)
        if kind == "sqlite":
            log = await SqliteLog.open(folder / "streams.db", limits, clock)
        yield Gateways(log, log, clock)
        await log.close()
