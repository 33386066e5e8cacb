"""Whatever is asked of them in whatever order, all logs answer alike, and what they count is what is there."""

import random
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from headway.core.errors import HeadwayError, ResyncRequired, StreamNotFound
from headway.streams import redis_log
from headway.streams.limits import StreamLimits
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.memory_log import MemoryLog
from headway.streams.record import Entry, Lease, StreamRecord
from headway.streams.redis_log import RedisLog
from headway.streams.redis_script import PREFIX
from headway.streams.sqlite_log import SqliteLog
from support.redis_server import needs_redis, redis_server
from support.stream_logs import WallClock

pytestmark = [pytest.mark.anyio, needs_redis]

Counts = dict[str, tuple[int, int, int]]
"""(events, bytes, streams) of each owner."""
OWNERS = ("", "tok_a", "tok b", "owners", "of x")
OPERATIONS = {
    "create": 6, "append": 8, "end": 3, "ack": 6, "remove": 2, "expire": 2, "take_over": 3, "new_epoch": 1, "renew": 1,
}  # fmt: skip
NUM_OPERATIONS = 100


class Logs:
    """One log of each kind, under one clock and the same limits."""

    def __init__(self, memory: MemoryLog, sqlite: SqliteLog, redis: RedisLog, raw: Any) -> None:
        self.all: tuple[StreamLog, ...] = (memory, sqlite, redis)
        self._tables = (memory._table, sqlite._table)
        self._raw = raw

    async def ask(self, what: str, *arguments: object) -> list[object]:
        """Return what each answers; an argument that is a list has one value for each."""
        answers = []
        for number, log in enumerate(self.all):
            own = [each[number] if isinstance(each, list) else each for each in arguments]
            answers.append(await _answer(getattr(log, what)(*own)))
        return answers

    async def found(self, stream_id: str) -> StreamRecord | None:
        """Return what all know of a stream that is not gone; names of others need not be remembered equally long."""
        records = [await log.find(stream_id) for log in self.all]
        kept = [None if record is None or record.state == "gone" else record for record in records]
        assert kept[0] == kept[1] == kept[2]
        return kept[0]

    async def recount(self, stream_ids: list[str]) -> Counts:
        counts: Counts = {}
        for stream_id in stream_ids:
            record = await self.found(stream_id)
            if record is None:
                continue
            pages = [await log.read(stream_id, record.epoch, record.acked, 1000) for log in self.all]
            assert pages[0] == pages[1] == pages[2]
            num_bytes = sum(event.entry.num_bytes for event in pages[0].events) + len(record.meta)
            before = counts.get(record.owner, (0, 0, 0))
            counts[record.owner] = (
                before[0] + len(pages[0].events), before[1] + num_bytes, before[2] + 1
            )  # fmt: skip
        return counts

    async def counted(self) -> list[tuple[Counts, tuple[int, ...]]]:
        """Return what each log counts, by owners and of all."""
        found = []
        for table in self._tables:
            owners = {
                name: (own.num_events, own.num_bytes, own.num_streams) for name, own in table._owners.items()
            }
            total = table._total
            found.append((owners, (total.num_events, total.num_bytes, total.num_streams)))
        return [*found, (await self._of_redis(), await self._total_of_redis())]

    async def _of_redis(self) -> Counts:
        fields: Mapping[bytes, bytes] = await self._raw.hgetall(PREFIX + "owners")
        values = {name.decode(): value.decode() for name, value in fields.items()}
        num_owners = int(values.pop("owners", 0))
        owners = {name.removeprefix("streams ") for name in values if name.startswith("streams ")}
        counts = {
            owner: (
                int(values[f"events {owner}"]), int(values[f"bytes {owner}"]), int(values[f"streams {owner}"])
            )
            for owner in owners
        }  # fmt: skip
        num_streams = sum(count[2] for count in counts.values())
        assert (num_owners, len(values)) == (len(owners), 3 * len(owners) + num_streams)
        return counts

    async def _total_of_redis(self) -> tuple[int, ...]:
        found = await self._raw.hmget(PREFIX + "total", ("events", "bytes", "streams"))
        return tuple(int(value or 0) for value in found)

    async def keys(self) -> list[bytes]:
        return list(await self._raw.keys("*"))


async def _answer(asked: Awaitable[object]) -> object:
    try:
        answer = await asked
    except (ResyncRequired, StreamNotFound):
        return "away"
    except (HeadwayError, LeaseLost) as error:
        return type(error).__name__
    if isinstance(answer, tuple) and not isinstance(
        answer, Lease
    ):  # a recovery, whose lease is each log's own
        return msgspec.structs.asdict(answer[1]), answer[2], answer[0]
    return answer


@asynccontextmanager
async def opened(folder: Path, url: str, limits: StreamLimits, clock: WallClock) -> AsyncIterator[Logs]:
    raw: Any = Redis.from_url(url)
    memory = MemoryLog(limits, clock)
    sqlite = await SqliteLog.open(folder / "streams.db", limits, clock)
    redis = await RedisLog.open(url, limits, clock)
    try:
        yield Logs(memory, sqlite, redis, raw)
    finally:
        for log in (sqlite, redis):
            await log.close()
        await raw.aclose()


class Walk:
    """What chance wants of them, one operation after another. `names`: of all streams there were."""

    def __init__(self, logs: Logs, clock: WallClock, rnd: random.Random) -> None:
        self.names: list[str] = []
        self._logs = logs
        self._clock = clock
        self._rnd = rnd
        self._leases: dict[str, list[object]] = {}
        self._last: dict[str, int] = {}

    async def step(self) -> None:
        rnd = self._rnd
        self._clock.ms += rnd.choice((1, 1, 1, 5, 20, 60, 300))
        what = rnd.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
        stream_id = rnd.choice(self.names[-12:] or ["0" * 32])
        if what == "create":
            await self._create()
        elif what in ("append", "end", "new_epoch", "renew"):
            if self._leases:
                await self._write(what)
        elif what == "take_over":
            answers = await self._logs.ask(what, stream_id)
            taken = [answer for answer in answers if isinstance(answer, tuple)]
            assert len(taken) in (0, len(answers))
            assert all(answer[:2] == taken[0][:2] for answer in taken)
            if taken:
                self._leases[stream_id] = [answer[2] for answer in taken]
                self._last[stream_id] = taken[0][0]["last_seq"]
        elif what == "ack":
            record = await self._logs.found(stream_id)
            cursor = (1, 0) if record is None else (record.epoch, rnd.randrange(record.last_seq + 2))
            _same(await self._logs.ask(what, stream_id, *cursor))
        else:
            _same(await self._logs.ask(what, *(() if what == "expire" else (stream_id,))))

    async def _create(self) -> None:
        rnd = self._rnd
        stream_id, entries = f"{rnd.getrandbits(128):032x}", self._entries()
        answers = await self._logs.ask(
            "create",
            stream_id,
            rnd.choice(OWNERS),
            bytes(rnd.randrange(30)),
            entries,
            rnd.choice((b"", b"p")),
        )
        if isinstance(_same(answers), Lease):
            self.names.append(stream_id)
            self._leases[stream_id] = answers
            self._last[stream_id] = len(entries)

    async def _write(self, what: str) -> None:
        stream_id = self._rnd.choice(list(self._leases))
        held, end = self._leases[stream_id], "ended" if what == "end" else None
        if what in ("append", "end"):
            answers = await self._logs.ask(
                "append", held, self._last[stream_id], self._entries(), self._rnd.choice((b"", b"p")), end
            )
        else:
            answers = await self._logs.ask(what, held)
        answer = _same(answers)
        if answer == LeaseLost.__name__:
            del self._leases[stream_id]
        elif isinstance(answer, int):
            self._last[stream_id] = 0 if what == "new_epoch" else answer

    def _entries(self) -> tuple[Entry, ...]:
        sizes = [self._rnd.randrange(12) for _ in range(self._rnd.choice((0, 1, 1, 2, 3, 7)))]
        return tuple(Entry("content", bytes(size), self._rnd.choice((None, "name"))) for size in sizes)


def _same(answers: list[object]) -> object:
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


async def test_all_logs_answer_alike_and_count_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_log, "_MADE_ROOM_AT_ONCE", 1)  # as the others do
    for seed in range(6):
        rnd, clock, folder = random.Random(seed), WallClock(), tmp_path / str(seed)
        limits = StreamLimits(
            max_events=rnd.choice((3, 8, 50)), max_bytes=rnd.choice((40, 200)),
            max_total_events=rnd.choice((10, 25, 60)), max_total_bytes=rnd.choice((150, 400, 3000)),
            max_streams=rnd.choice((2, 4, 9, 16)), ttl_ms=3000, settle_ms=rnd.choice((1, 100, 2999)),
            remembered_ms=rnd.choice((200, 5000)), lease_ms=rnd.choice((50, 500)),
        )  # fmt: skip
        folder.mkdir()
        with redis_server(folder) as server:
            async with opened(folder, server.url, limits, clock) as logs:
                walk = Walk(logs, clock, rnd)
                for _ in range(NUM_OPERATIONS):
                    await walk.step()
                    counts = await logs.recount(walk.names)
                    total = tuple(map(sum, zip(*counts.values(), strict=True))) or (0, 0, 0)
                    assert await logs.counted() == [(counts, total)] * len(logs.all)
                for name in walk.names:
                    await logs.ask("remove", name)
                clock.ms += limits.remembered_ms
                await logs.ask("expire")
                assert await logs.counted() == [({}, (0, 0, 0))] * len(logs.all)
                assert await logs.keys() == []
