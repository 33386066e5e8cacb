"""A log in Redis, for several gateways: any of them reads a stream, one at a time appends, and another takes it over.

Each call is one script (`redis_script`). The lease's fence is checked inside it, so that of two gateways that both
believe to hold a stream only the later one appends; clocks of gateways that differ cost time, not events. News of other
gateways come over one channel; when its connection was lost everybody looks for himself. Needs the extra `gateway`.

What a Redis that fails may forget is its configuration's business. It is noticed: an append names the event that it
follows, and a stream that is taken over from another server process than it was written in gets a new epoch.
"""

import asyncio
import itertools
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self, cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from headway.core.errors import ConfigError, HeadwayError, StreamLogFull, StreamLogUnavailable
from headway.streams.feed import Feed
from headway.streams.ids import stream_not_found
from headway.streams.limits import StreamLimits, is_crowded, num_bytes_of
from headway.streams.log import LeaseLost, StreamExists
from headway.streams.record import (
    EndState,
    Entry,
    Event,
    Lease,
    Page,
    Recovery,
    StreamRecord,
    StreamState,
    check_position,
    stale_epoch,
)
from headway.streams.redis_script import CHANNEL, StreamScript
from headway.streams.table import never_was

logger = logging.getLogger(__name__)

_RECONNECT_S: Final = 0.5
_QUIET_S: Final = 5.0
"""Without news for so long, Redis is asked for a sign: a connection that broke without a word brings none for ever."""
_MADE_ROOM_AT_ONCE: Final = 20
_SIZE: Final = struct.Struct(">I")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Entry).decode


class RedisLog:
    """A `StreamLog` at a URL such as `redis://host:6379/0`; made by `open`. `now_ms`: wall-clock milliseconds."""

    appends_at_once = False

    def __init__(
        self, url: str, limits: StreamLimits, now_ms: Callable[[], int], timeout_s: float, quiet_s: float
    ) -> None:
        self.news = Feed()
        self.room = Feed()
        self._limits = limits
        self._now_ms = now_ms
        self._quiet_s = quiet_s
        # Its commands have no types. Retries are ours: an append that was answered too late must not happen twice.
        client: Any = Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        self._script = StreamScript(client)
        self._listener: Any = Redis.from_url(url, socket_timeout=None, socket_connect_timeout=timeout_s)
        self._nonces = itertools.count()
        self._listening: asyncio.Task[None] | None = None
        self._is_interrupted = False
        self._doubtful: dict[
            str, int
        ] = {}  # what Redis may have begun without saying so; until it is an orphan

    @classmethod
    async def open(
        cls,
        url: str,
        limits: StreamLimits,
        now_ms: Callable[[], int],
        *,
        timeout_s: float = 1.0,
        quiet_s: float = _QUIET_S,
    ) -> Self:
        """Connect; raises ConfigError for what is no URL, or may not subscribe; StreamLogUnavailable without an answer."""
        try:
            log = cls(url, limits, now_ms, timeout_s, quiet_s)
        except ValueError as error:
            raise ConfigError(f"Streams cannot be kept in Redis: {error}") from None
        try:
            await log._script.load()
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            log._listening = asyncio.ensure_future(log._listen(ready))
            await ready
        except BaseException:
            await log.close()
            raise
        return log

    async def create(
        self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry] = (), progress: bytes = b""
    ) -> Lease:
        """Begin a stream."""
        limits = self._limits
        arguments = (
            owner, self._now_ms(), meta, self._lease_end(), progress, num_bytes_of(entries),
            limits.max_streams, limits.max_total_events, limits.max_total_bytes, *_packed(entries),
        )  # fmt: skip
        try:
            answer = await self._script.call("create", stream_id, *arguments)
        except StreamLogUnavailable:
            self._doubtful[stream_id] = self._lease_end()
            raise
        if answer[0] == b"exists":
            raise StreamExists(stream_id)
        if answer[0] == b"full":
            raise StreamLogFull("Too many resumable streams are kept; retry later, or without resuming.")
        return Lease(stream_id, 1)

    async def append(
        self,
        lease: Lease,
        after: int,
        entries: Sequence[Entry],
        progress: bytes = b"",
        end: EndState | None = None,
    ) -> int | None:
        """Append; asked a second time under the same nonce where the first answer was lost."""
        limits = self._limits
        due_ms = self._lease_end() if end is None else self._now_ms() + limits.ttl_ms
        arguments = (
            lease.fence, f"{self._script.name}.{next(self._nonces)}", after, due_ms, end or "", progress,
            num_bytes_of(entries),
            limits.max_events, limits.max_bytes, limits.max_total_events, limits.max_total_bytes,
            *_packed(entries),
        )  # fmt: skip
        answer = await self._script.call("append", lease.stream_id, *arguments)
        if answer[0] == b"full":
            return None
        _check_held(answer, lease)
        if answer[0] == b"stale":
            raise stale_epoch()
        self.news.notify(lease.stream_id)
        return int(answer[1])

    async def find(self, stream_id: str) -> StreamRecord | None:
        """Ask what is known of a stream."""
        return _record(stream_id, await self._script.call("find", stream_id))

    async def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        """Ask for events."""
        (found_epoch, state, acked, last), events = await self._script.call("read", stream_id, after, limit)
        if state is None:
            raise stream_not_found()
        if state == b"gone" or int(found_epoch) != epoch:
            raise stale_epoch()
        check_position(int(acked), int(last), after)
        if len(events) < min(limit, int(last) - after):  # evicted by a server that was short of memory
            raise stale_epoch()
        page = tuple(Event(seq, _decode(event[_SIZE.size :])) for seq, event in enumerate(events, after + 1))
        return Page(page, state != b"open" and after + len(page) == int(last))

    async def ack(self, stream_id: str, epoch: int, seq: int) -> None:
        """Drop events."""
        answer = (await self._script.call("ack", stream_id, epoch, seq))[0]
        if answer == b"unknown":
            raise stream_not_found()
        if answer == b"stale":
            raise stale_epoch()
        if answer == b"never":
            raise never_was(seq)
        self.room.notify(stream_id)

    async def renew(self, lease: Lease) -> None:
        """Prolong a lease."""
        _check_held(await self._script.call("renew", lease.stream_id, lease.fence, self._lease_end()), lease)

    async def orphans(self) -> list[str]:
        """Return open streams whose gateways say nothing any more."""
        return await self._script.due("open", self._now_ms())

    async def take_over(self, stream_id: str) -> Recovery | None:
        """Hold an orphan."""
        answer = await self._script.call("take_over", stream_id, self._now_ms(), self._lease_end())
        if answer[0] == b"held":
            return None
        _, fence, found, progress = answer
        record = _record(stream_id, found)
        assert record is not None
        return Recovery(Lease(stream_id, fence), record, tuple(progress))

    async def new_epoch(self, lease: Lease) -> int:
        """Begin anew."""
        answer = await self._script.call("new_epoch", lease.stream_id, lease.fence)
        _check_held(answer, lease)
        self._notify(lease.stream_id)
        return int(answer[1])

    async def remove(self, stream_id: str) -> None:
        """Let a stream be gone."""
        await self._remove(stream_id)

    async def expire(self) -> int:
        """Let old streams be gone, forget older ones; several gateways may do so at once."""
        now_ms = self._now_ms()
        num_removed = 0
        for stream_id, orphaned_ms in list(
            self._doubtful.items()
        ):  # else somebody would go on with it, for nobody
            if await self._remove(stream_id) or orphaned_ms <= now_ms:
                del self._doubtful[stream_id]
        for stream_id in await self._script.due("over", now_ms):
            num_removed += await self._remove(stream_id, now_ms)
        settled_ms = now_ms + self._limits.ttl_ms - self._limits.settle_ms
        while is_crowded(await self._script.kept(), self._limits):
            first = (await self._script.due("over", settled_ms))[:_MADE_ROOM_AT_ONCE]
            removed = [await self._remove(stream_id) for stream_id in first]
            num_removed += sum(removed)
            if not any(removed):
                break
        for stream_id in await self._script.due("gone", now_ms, keep=self._limits.max_streams):
            await self._script.call("forget", stream_id)
        return num_removed

    async def close(self) -> None:
        """Close the connections."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        await self._script.close()
        await self._listener.aclose()

    async def _remove(self, stream_id: str, over_ms: int | None = None) -> bool:
        """Let a stream be gone, if it is over by `over_ms` unless that is None; return whether that changed something."""
        until_ms = self._now_ms() + self._limits.remembered_ms
        answer = await self._script.call("remove", stream_id, until_ms, "" if over_ms is None else over_ms)
        self._notify(stream_id)
        return bool(answer[0] == b"ok")

    def _lease_end(self) -> int:
        return self._now_ms() + self._limits.lease_ms

    def _notify(self, stream_id: str) -> None:
        self.news.notify(stream_id)
        self.room.notify(stream_id)

    async def _listen(self, ready: "asyncio.Future[None]") -> None:
        """Pass on what other gateways tell, for ever; `ready`: what came of the first attempt to hear them."""
        while True:
            try:
                async with self._listener.pubsub() as pubsub:
                    await pubsub.subscribe(CHANNEL)
                    await self._hear_all(pubsub, ready)
            except (RedisError, OSError) as error:
                if not ready.done():
                    ready.set_exception(_refusal(error))
                    return
                if not self._is_interrupted:  # an outage of hours would fill the log
                    self._is_interrupted = True
                    logger.warning("news of other gateways' streams are interrupted: %s", error)
            await asyncio.sleep(_RECONNECT_S)

    async def _hear_all(self, pubsub: Any, ready: "asyncio.Future[None]") -> None:
        """Raises RedisError, OSError once the connection is of no use."""
        is_asked = False
        while True:
            message = await pubsub.get_message(timeout=self._quiet_s)
            if message is not None:
                is_asked = False
                self._hear(message)
                if not ready.done():
                    ready.set_result(None)
            elif is_asked:
                raise TimeoutError("Redis does not say a word")
            else:
                await pubsub.ping()
                is_asked = True

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":  # anew: what was told meanwhile is lost
            if self._is_interrupted:
                self._is_interrupted = False
                logger.info("news of other gateways' streams come again")
            self.news.notify_all()
            self.room.notify_all()
        elif message["type"] == "message":
            who, what, stream_id = message["data"].decode().split(" ")
            if who != self._script.name:
                (self.news if what == "news" else self.room).notify(stream_id)


def _refusal(error: RedisError | OSError) -> HeadwayError:
    """Return what whoever starts hears where Redis tells no news: for good, if it understood the question."""
    if isinstance(error, ResponseError):
        return ConfigError(
            f"Streams cannot be kept in this Redis, which does not let {CHANNEL} be heard: {error}."
        )
    return StreamLogUnavailable("Where resumable streams are kept cannot be reached; retry later.")


def _packed(entries: Sequence[Entry]) -> Iterator[bytes]:
    for entry in entries:
        yield _SIZE.pack(entry.num_bytes) + _encode(entry)


def _check_held(answer: list[Any], lease: Lease) -> None:
    if answer[0] == b"lost":
        raise LeaseLost(lease.stream_id)


def _record(stream_id: str, found: list[bytes | None]) -> StreamRecord | None:
    owner, created_ms, meta, epoch, state, acked, last = found
    if owner is None or created_ms is None or meta is None or epoch is None or acked is None or last is None:
        return None
    assert state is not None
    return StreamRecord(
        stream_id=stream_id,
        owner=owner.decode(),
        created_ms=int(created_ms),
        meta=meta,
        epoch=int(epoch),
        state=cast(StreamState, state.decode()),
        acked=int(acked),
        last_seq=int(last),
    )
