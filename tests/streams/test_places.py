import sys
from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from headway.streams.places import open_log
from headway.streams.sqlite_log import SqliteLog
from support.redis_server import needs_redis, redis_server
from support.stream_logs import WallClock

pytestmark = pytest.mark.anyio


async def test_a_log_is_opened_by_its_place(tmp_path: Path) -> None:
    memory = await open_log("memory", StreamLimits(), WallClock())
    assert isinstance(memory, MemoryLog)
    sqlite = await open_log(str(tmp_path / "streams.db"), StreamLimits(), WallClock())
    assert isinstance(sqlite, SqliteLog)
    await sqlite.close()
    await memory.close()


@needs_redis
async def test_a_url_is_a_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        log = await open_log(server.url, StreamLimits(), WallClock())
        await log.create("a" * 32, "tok", b"")
        await log.close()


async def test_without_the_extra_redis_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "headway.streams.redis_log", raising=False)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r'pip install "headway\[gateway\]"'):
        await open_log("redis://127.0.0.1:1/0", StreamLimits(), WallClock())
