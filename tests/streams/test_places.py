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


async def test_a_redis_that_is_not_there_is_told_to_whoever_starts_the_server() -> None:
    with pytest.raises(ConfigError, match="Redis of --streams cannot be reached") as caught:
        await open_log("redis://ada:sesame@127.0.0.1:1/0", StreamLimits(), WallClock())
    assert "sesame" not in caught.value.message


async def test_another_url_is_no_file() -> None:
    with pytest.raises(ConfigError, match="a URL that begins with redis://") as caught:
        await open_log("postgres://ada:sesame@db/0", StreamLimits(), WallClock())
    assert "sesame" not in caught.value.message


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"streams\.db: No such file or directory\.$"):
        await open_log(str(tmp_path / "none" / "streams.db"), StreamLimits(), WallClock())
