"""What only a file can promise: see `test_logs.py` for the contract."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.core.errors import ConfigError, ResyncRequired, StreamLogUnavailable
from headway.streams.ids import Cursor
from headway.streams.journal import Journal
from headway.streams.limits import StreamLimits
from headway.streams.record import Entry, attach
from headway.streams.sqlite_log import SqliteLog
from support import stream_victim
from support.stream_logs import WallClock

pytestmark = pytest.mark.anyio

A, B, C = "a" * 32, "b" * 32, "c" * 32


def content(*texts: str) -> list[Entry]:
    return [Entry("content", text.encode()) for text in texts]


@asynccontextmanager
async def opened(
    path: Path, clock: WallClock | None = None, boot: str = "monday", limits: StreamLimits | None = None
) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(path, limits or StreamLimits(), clock or WallClock(), lambda: boot)
    try:
        yield log
    finally:
        await log.close()


async def texts(log: SqliteLog, stream_id: str, after: int = 0, epoch: int = 1) -> list[str]:
    return [event.entry.data.decode() for event in (await log.read(stream_id, epoch, after, 10**6)).events]


async def test_streams_are_there_again_when_the_file_is_opened_again(tmp_path: Path) -> None:
    clock = WallClock()
    async with opened(tmp_path / "streams", clock) as log:
        a = await log.create(A, "tok", b"meta")
        await log.append(a, 0, [Entry("control", b"{}", "message_start"), *content("naïve")], b"p1")
        await log.append(a, 2, content("x"), b"p2")
        await log.ack(A, 1, 1)
        b = await log.create(B, "tok2", b"")
        await log.append(b, 0, content("1"))
        await log.append(b, 1, [Entry("control", b"[DONE]")], end="ended")
        await log.create(C, "tok3", b"")
        await log.remove(C)
    async with opened(tmp_path / "streams", clock) as log:
        assert await log.orphans() == [A]
        assert (await log.read(A, 1, 1, 9)).events[0].entry == Entry("content", "naïve".encode())
        assert (await texts(log, B), (await log.read(B, 1, 0, 9)).complete) == (["1", "[DONE]"], True)
        record = await log.find(C)
        assert record is not None
        assert (record.state, record.owner) == ("gone", "tok3")
        recovery = await log.take_over(A)
        assert recovery is not None
        assert (recovery.progress, recovery.record.meta, recovery.record.owner) == (
            (b"p1", b"p2"),
            b"meta",
            "tok",
        )
        assert (recovery.record.acked, recovery.record.last_seq, recovery.record.epoch) == (1, 3, 1)
        assert await log.append(recovery.lease, 3, content("y")) == 4
        clock.ms += StreamLimits().ttl_ms
        assert await log.expire() == 1
    async with opened(tmp_path / "streams", clock) as log:
        assert await texts(log, A, 1) == ["naïve", "x", "y"]
        clock.ms += StreamLimits().remembered_ms
        await log.expire()
        assert [await log.find(stream_id) for stream_id in (B, C)] == [None, None]
    async with opened(tmp_path / "streams", clock) as log:
        assert [await log.find(stream_id) for stream_id in (B, C)] == [None, None]
        assert await texts(log, A, 1) == ["naïve", "x", "y"]


async def test_what_was_promised_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "streams"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, stream_victim.__file__, str(path), "8"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout is not None
    promised: dict[str, tuple[int, int]] = {}
    count = 0
    async for line in process.stdout:
        if not line.endswith(b"\n"):
            break  # it was killed while it said so
        stream_id, number, last_seq = line.decode().split()
        promised[stream_id] = (int(number), int(last_seq))
        count += 1
        if count == 400:
            process.kill()  # what is in the pipe was promised, too
    assert await process.wait() == -signal.SIGKILL
    assert len(promised) == 8
    log = await SqliteLog.open(path, StreamLimits(), WallClock())
    for stream_id, (last_number, last_kept) in promised.items():
        kept = await texts(log, stream_id)
        assert len(kept) >= last_kept
        recovery = await log.take_over(stream_id)
        assert recovery is not None
        pieces = [int(piece) for piece in recovery.progress]
        assert pieces == list(range(len(pieces)))
        assert len(pieces) > last_number
        # An append is there whole or not at all: events and progress tell the same.
        assert kept == [f"{piece}.{part}" for piece in pieces for part in range(1 + piece % 3)]
        assert recovery.record.epoch == 1
    await log.close()


async def crashed(path: Path, boot: str) -> None:
    """Leave a file behind as a process does that was killed: with a stream of two events."""
    log = await SqliteLog.open(path, StreamLimits(), WallClock(), lambda: boot)
    lease = await log.create(A, "tok", b"")
    await log.append(lease, 0, content("1", "2"))
    log._journal._disconnect = lambda _: None
    await log.close()


async def test_after_another_boot_numbers_of_open_streams_are_not_trusted(tmp_path: Path) -> None:
    await crashed(tmp_path / "streams", "monday")
    async with opened(tmp_path / "streams", boot="monday") as log:
        assert attach(await log.find(A), "tok", Cursor(1, 2)) == 2
    await crashed(tmp_path / "power_loss", "monday")
    async with opened(tmp_path / "power_loss", boot="tuesday") as log:
        record = await log.find(A)
        with pytest.raises(ResyncRequired):
            attach(record, "tok", Cursor(1, 2))
        assert attach(record, "tok", Cursor(1, 0)) == 0  # who has nothing yet may have all
        assert await texts(log, A, epoch=2) == ["1", "2"]


async def test_a_file_that_was_closed_properly_is_trusted_in_any_boot(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams", boot="monday") as log:
        lease = await log.create(A, "tok", b"")
        await log.append(lease, 0, content("1", "2"))
    async with opened(tmp_path / "streams", boot="tuesday") as log:
        assert attach(await log.find(A), "tok", Cursor(1, 2)) == 2


async def test_a_file_has_one_owner_at_a_time_and_only_he_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "streams"
    async with opened(path) as log:
        await log.create(A, "tok", b"")
        with os.scandir(tmp_path) as files:
            modes = {file.name: file.stat().st_mode & 0o777 for file in files}
        assert modes == {"streams": 0o600, "streams-wal": 0o600}
        with pytest.raises(ConfigError, match="in use"):
            await SqliteLog.open(path, StreamLimits(), WallClock())
    async with opened(path) as log:
        assert await log.find(A) is not None


@pytest.mark.parametrize("what", ["garbage", "folder", "newer"])
async def test_what_cannot_be_used_is_refused_by_name(what: str, tmp_path: Path) -> None:
    path = tmp_path / "streams"
    if what == "garbage":
        path.write_bytes(b"no database " * 1000)
    elif what == "folder":
        path.mkdir()
    else:
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 9")
        db.close()
    with pytest.raises(ConfigError, match=str(path)):
        await SqliteLog.open(path, StreamLimits(), WallClock())


async def test_appends_of_one_turn_of_the_loop_share_a_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        leases = [await log.create(f"{n:032x}", "tok", b"") for n in range(50)]
        statements: list[str] = []
        await log._journal.do(lambda db: db.set_trace_callback(statements.append), lambda _: None)
        await asyncio.gather(*(log.append(lease, 0, content("x")) for lease in leases))
        await log._journal.do(lambda db: db.set_trace_callback(None), lambda _: None)
        assert sum(statement.startswith("INSERT INTO events") for statement in statements) == 50
        assert sum(statement == "COMMIT" for statement in statements) <= 5


async def test_a_stream_that_cannot_be_written_fails_alone_and_is_as_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        a, b = await log.create(A, "tok", b""), await log.create(B, "tok", b"")
        await log.append(a, 0, content("1"))
        bad = Entry("content", b"x", "\ud800")  # a name that is no text
        results = await asyncio.gather(
            log.append(a, 1, [bad]), log.append(b, 0, content("1")), return_exceptions=True
        )
        assert isinstance(results[0], StreamLogUnavailable)
        assert results[1] == 1
        assert await texts(log, A) == ["1"]
        assert await log.append(a, 1, content("2")) == 2
    async with opened(tmp_path / "streams") as log:
        assert (await texts(log, A), await texts(log, B)) == (["1", "2"], ["1"])


async def test_appends_of_one_stream_must_follow_each_other(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        lease = await log.create(A, "tok", b"")
        first, second = await asyncio.gather(
            log.append(lease, 0, content("1")), log.append(lease, 0, content("1")), return_exceptions=True
        )
        assert first == 1
        assert isinstance(second, RuntimeError)


async def test_who_stops_waiting_for_an_append_does_not_undo_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        lease = await log.create(A, "tok", b"")
        appending = asyncio.ensure_future(log.append(lease, 0, content("1")))
        await asyncio.sleep(0)
        appending.cancel()
        await asyncio.wait({appending})
        with log.news.subscribe(A) as news:
            if not await texts(log, A):
                with pytest.raises(RuntimeError):
                    await log.append(lease, 0, content("1"))
                await news.wait()
        assert await texts(log, A) == ["1"]
        assert await log.append(lease, 1, content("2")) == 2


async def test_a_new_epoch_comes_after_an_append_that_is_under_way(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        lease = await log.create(A, "tok", b"")
        appended, epoch = await asyncio.gather(log.append(lease, 0, content("1")), log.new_epoch(lease))
        assert (appended, epoch) == (1, 2)
        assert await texts(log, A, epoch=2) == []
        await log.append(lease, 0, content("one"))
    async with opened(tmp_path / "streams") as log:
        assert await texts(log, A, epoch=2) == ["one"]


async def test_nobody_takes_over_a_stream_whose_append_is_under_way(tmp_path: Path) -> None:
    clock = WallClock()
    async with opened(tmp_path / "streams", clock) as log:
        lease = await log.create(A, "tok", b"")
        clock.ms += StreamLimits().lease_ms
        appended, recovery = await asyncio.gather(log.append(lease, 0, content("1")), log.take_over(A))
        assert (appended, recovery) == (1, None)
        assert await log.append(lease, 1, content("2")) == 2


async def test_a_stream_removed_while_it_is_appended_to_stays_gone(tmp_path: Path) -> None:
    async with opened(tmp_path / "streams") as log:
        lease = await log.create(A, "tok", b"")
        results = await asyncio.gather(
            log.append(lease, 0, content("1")), log.remove(A), return_exceptions=True
        )
        assert results[1] is None
    async with opened(tmp_path / "streams") as log:
        record = await log.find(A)
        assert record is not None
        assert record.state == "gone"
        rows = await log._journal.do(
            lambda db: db.execute("SELECT count(*) FROM events").fetchone()[0], lambda count: count
        )
        assert rows == 0


async def test_a_journal_that_fails_to_commit_says_so_and_goes_on() -> None:
    journal = Journal(lambda: sqlite3.connect(":memory:", isolation_level=None), lambda _: None)
    await journal.opened()
    with pytest.raises(StreamLogUnavailable):
        await journal.do(lambda db: db.execute("no SQL"), lambda _: None)
    assert await journal.do(lambda db: db.execute("SELECT 7").fetchone()[0], lambda seven: seven) == 7
    await journal.close()


async def test_what_a_full_disk_kept_of_a_stream_is_not_mixed_into_a_later_one(tmp_path: Path) -> None:
    clock, limits = WallClock(), StreamLimits()

    def never_full(db: sqlite3.Connection) -> None:
        db.set_authorizer(None)

    def full(db: sqlite3.Connection) -> None:
        def refuse(action: int, table: str | None, *_: object) -> int:
            may = action != sqlite3.SQLITE_DELETE or table not in ("events", "progress")
            return sqlite3.SQLITE_OK if may else sqlite3.SQLITE_DENY

        db.set_authorizer(refuse)

    async with opened(tmp_path / "streams", clock) as log:
        lease = await log.create(A, "tok", b"")
        await log.append(lease, 0, content("old"), b"old")
        await log._journal.do(full, lambda _: None)
        with pytest.raises(StreamLogUnavailable):
            await log.remove(A)
        await log._journal.do(never_full, lambda _: None)
        clock.ms += limits.remembered_ms
        await log.expire()
        assert await log.find(A) is None
    async with opened(tmp_path / "streams", clock) as log:
        lease = await log.create(B, "tok", b"")
        assert await log.append(lease, 0, content("new"), b"new") == 1
        clock.ms += limits.lease_ms
        recovery = await log.take_over(B)
        assert recovery is not None
        assert (recovery.progress, await texts(log, B)) == ((b"new",), ["new"])
