"""Opens the log of streams that a setting names: `memory`, a Redis URL, or the path of an SQLite file."""

from collections.abc import Callable
from pathlib import Path

from headway.core.errors import ConfigError, StreamLogUnavailable
from headway.streams.limits import StreamLimits
from headway.streams.log import StreamLog
from headway.streams.memory_log import MemoryLog
from headway.streams.sqlite_log import SqliteLog

_REDIS = ("redis://", "rediss://", "unix://")


async def open_log(place: str, limits: StreamLimits, now_ms: Callable[[], int]) -> StreamLog:
    """Open the log at `place`. `now_ms`: wall-clock milliseconds. Raises ConfigError, never with a URL's password."""
    if place == "memory":
        return MemoryLog(limits, now_ms)
    if place.startswith(_REDIS):
        try:
            from headway.streams.redis_log import RedisLog
        except ImportError:
            raise ConfigError(
                'Streams in Redis need redis-py: `make extras`, or pip install "headway[gateway]".'
            ) from None
        try:
            return await RedisLog.open(place, limits, now_ms)
        except StreamLogUnavailable:
            raise ConfigError(
                "The Redis of --streams cannot be reached: start it, or name another place with --streams."
            ) from None
    if "://" in place:
        raise ConfigError(
            "--streams is memory, a path, or a URL that begins with redis://, rediss:// or unix://."
        )
    return await SqliteLog.open(Path(place), limits, now_ms)
