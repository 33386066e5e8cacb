"""How the streams' script is called in Redis: its keys, what is asked once more, and what is made of failures.

What the functions of `stream_log.lua` take and answer is between it and `redis_log`. Needs the extra `gateway`.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final, Literal, TypeVar

from redis.exceptions import NoScriptError, RedisError

from headway.core.errors import StreamLogUnavailable
from headway.streams.courier import Courier
from headway.streams.limits import Usage

logger = logging.getLogger(__name__)

T = TypeVar("T")

PREFIX: Final = "headway:{streams}:"
"""One hash tag keeps all keys on one node of a cluster (Redis cluster specification, "Hash tags")."""
CHANNEL: Final = PREFIX + "news"
_SHARED: Final = (*(PREFIX + name for name in ("open", "over", "gone", "total")), CHANNEL, PREFIX + "owners")
_REPEATABLE: Final = frozenset(("append", "find", "read", "ack", "renew", "remove", "forget"))
"""Asked once more where the answer is missing: a server that was restarted has closed every connection that waits here."""
_AT_ONCE: Final = 500


class StreamScript:
    """The script on one server. `client`: a `redis.asyncio.Redis` that does not retry. `name`: whose calls these are."""

    def __init__(self, client: Any) -> None:
        self.name = secrets.token_hex(8)
        self._client = client
        self._courier = Courier(client)
        self._source = files("headway.streams").joinpath("stream_log.lua").read_bytes()
        self._sha = ""
        self._has_complained = False

    async def load(self) -> None:
        """Make the script known to the server. Raises StreamLogUnavailable."""
        self._sha = await self._ask(lambda: self._client.script_load(self._source))

    async def call(self, function: str, stream_id: str, *arguments: object) -> Any:
        """Return what `function` answers about a stream. Raises StreamLogUnavailable."""
        keys = [f"{PREFIX}{kind}:{stream_id}" for kind in ("stream", "events", "progress")]
        keys += _SHARED
        call = (len(keys), *keys, function, self.name, *arguments)
        try:
            return await self._eval(call)
        except StreamLogUnavailable:
            if function not in _REPEATABLE:
                raise
            return await self._eval(call)

    async def due(
        self, state: Literal["open", "over", "gone"], now_ms: int, keep: int | None = None
    ) -> list[str]:
        """Return streams whose lease or state has ended, a page of them, first ones first; and what is more than `keep`."""
        key = PREFIX + state
        due = await self._ask(lambda: self._client.zrangebyscore(key, "-inf", now_ms, 0, _AT_ONCE))
        if keep is not None:
            num_too_many = min(await self._ask(lambda: self._client.zcard(key)) - keep, _AT_ONCE)
            if num_too_many > len(due):
                due = await self._ask(lambda: self._client.zrange(key, 0, num_too_many - 1))
        return [stream_id.decode() for stream_id in due]

    async def kept(self) -> Usage:
        """Return what is kept of all."""
        fields = ("events", "bytes", "streams")
        found = await self._ask(lambda: self._client.hmget(PREFIX + "total", fields))
        return Usage(*(int(value or 0) for value in found))

    async def close(self) -> None:
        """Close the connections."""
        await self._courier.close()
        await self._client.aclose()

    async def _eval(self, call: tuple[object, ...]) -> Any:
        try:
            return await self._ask(lambda: self._courier.evalsha(self._sha, call))
        except NoScriptError:  # the server was restarted
            await self.load()
            return await self._ask(lambda: self._courier.evalsha(self._sha, call))

    async def _ask(self, command: Callable[[], Awaitable[T]]) -> T:
        try:
            return await command()
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            if not self._has_complained:
                self._has_complained = True
                logger.warning(
                    "Redis did not answer about a stream: %r; further failures are not logged", error
                )
            raise StreamLogUnavailable(
                "Where resumable streams are kept cannot be reached; retry later, or without resuming."
            ) from error
