"""A log in an SQLite file: streams survive `kill -9` of the process. It is for one process at a time.

What is kept is in memory, by the rules of `table`, and in the file; an append is seen in memory once it is committed. The
file is read when it is opened, and again for the progress of a stream that is taken over.

Durability (sqlite.org/wal.html): with a write-ahead log and `synchronous = NORMAL` a commit is a write without a sync. A
killed process loses nothing that was committed. A machine that loses power may lose the last commits, in order, never
part of one; clients may then have seen events that the file does not know, and what is generated again would have their
numbers. So the file remembers which boot of the machine it was written in: after another one, unless it was closed
properly, every open stream gets a new epoch, and cursors of the old one are refused.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from headway.core.errors import ConfigError, StreamLogUnavailable
from headway.streams.feed import Feed
from headway.streams.journal import Journal
from headway.streams.limits import StreamLimits
from headway.streams.record import EndState, Entry, Lease, Page, Recovery, StreamRecord
from headway.streams.sqlite_file import Append, StreamFile, boot_id
from headway.streams.table import StreamTable

R = TypeVar("R")
T = TypeVar("T")


class SqliteLog:
    """A `StreamLog`; made by `open`. `now_ms`: wall-clock milliseconds."""

    appends_at_once = False

    def __init__(
        self, table: StreamTable, file: StreamFile, journal: Journal, now_ms: Callable[[], int]
    ) -> None:
        self.news = Feed()
        self.room = Feed()
        self._now_ms = now_ms
        self._table = table
        self._file = file
        self._journal = journal
        self._appending: set[str] = set()
        self._acks: dict[str, int] = {}

    @classmethod
    async def open(
        cls, path: Path, limits: StreamLimits, now_ms: Callable[[], int], boot: Callable[[], str] = boot_id
    ) -> Self:
        """Open or create the file; raises ConfigError where that is impossible or another process has it."""
        file = StreamFile(path, boot)
        journal = Journal(file.connect, file.close_properly)
        try:
            await journal.opened()
        except (sqlite3.Error, OSError) as error:
            strerror = getattr(error, "strerror", None)
            reason = f"{strerror}." if strerror else f"{error}. Is it in use, or damaged?"
            raise ConfigError(f"Streams cannot be kept in {path}: {reason}") from None
        table = StreamTable(limits, now_ms)
        for stored in await journal.do(file.load, _as_it_is):
            table.add(*stored)
        return cls(table, file, journal, now_ms)

    async def create(
        self, stream_id: str, owner: str, meta: bytes, entries: Sequence[Entry] = (), progress: bytes = b""
    ) -> Lease:
        """Begin a stream, in one transaction."""
        self._table.check_new(stream_id, owner, meta, entries)
        record = StreamRecord(stream_id=stream_id, owner=owner, created_ms=self._now_ms(), meta=meta)
        row = Append(stream_id, 0, tuple(entries), progress, None, 0)

        def create(db: sqlite3.Connection) -> None:
            self._file.create(db, record)
            self._file.append(db, row)

        def created(_: object) -> Lease:
            self.news.notify(stream_id)
            return self._table.take(self._table.add(record, entries))

        return await self._do(create, created)

    async def append(
        self,
        lease: Lease,
        after: int,
        entries: Sequence[Entry],
        progress: bytes = b"",
        end: EndState | None = None,
    ) -> int | None:
        """Append, together with what other streams append at the same time. One append of a stream at a time."""
        stream_id = lease.stream_id
        if stream_id in self._appending:
            raise RuntimeError("a stream's appends must follow each other")
        if not self._table.may_append(lease, after, entries, end):
            return None
        due_ms = self._table.due_ms(end)
        row = Append(stream_id, after, tuple(entries), progress, end, due_ms)
        self._appending.add(stream_id)

        def appended(_: object) -> int:
            self._appending.discard(stream_id)
            last_seq = self._table.append(lease, entries, end)
            self.news.notify(stream_id)
            return last_seq

        done = self._do(lambda db: self._file.append(db, row), appended)

        def failed(done: "asyncio.Future[int]") -> None:
            if isinstance(done.exception(), StreamLogUnavailable):  # else `appended` was called
                self._appending.discard(stream_id)

        done.add_done_callback(failed)
        return await asyncio.shield(done)  # until it is done no other may follow, whoever waits for it

    async def find(self, stream_id: str) -> StreamRecord | None:
        """Return what is known of a stream."""
        stream = self._table.get(stream_id)
        return None if stream is None else stream.record()

    async def read(self, stream_id: str, epoch: int, after: int, limit: int) -> Page:
        """Read from memory."""
        return self._table.read(stream_id, epoch, after, limit)

    async def ack(self, stream_id: str, epoch: int, seq: int) -> None:
        """Drop events in memory now, in the file with the next append of any stream: what stays longer does no harm."""
        if self._table.ack(stream_id, epoch, seq):
            self._acks[stream_id] = seq
            self.room.notify(stream_id)

    async def renew(self, lease: Lease) -> None:
        """Prolong a lease, which only this process can hold."""
        self._table.renew(lease)

    async def orphans(self) -> list[str]:
        """Return open streams that nobody holds: after a restart, all of them."""
        return self._table.orphans()

    async def take_over(self, stream_id: str) -> Recovery | None:
        """Hold an orphan; none is one whose append waits for a slow disk."""
        stream = self._table.orphan(stream_id)
        if stream is None or stream_id in self._appending:
            return None
        lease = self._table.take(stream)
        progress = await self._do(lambda db: self._file.take_over(db, stream_id), _as_it_is)
        return Recovery(lease, stream.record(), progress)

    async def new_epoch(self, lease: Lease) -> int:
        """Begin anew, after an append that is under way."""
        stream_id = lease.stream_id
        self._table.held(lease)

        def begun_anew(_: object) -> int:
            epoch = self._table.new_epoch(lease)
            self._acks.pop(stream_id, None)
            self.news.notify(stream_id)
            self.room.notify(stream_id)
            return epoch

        return await self._do(lambda db: self._file.new_epoch(db, stream_id), begun_anew)

    async def remove(self, stream_id: str) -> None:
        """Let a stream be gone: in memory now, in the file when this returns."""
        if self._table.remove(stream_id):
            self._acks.pop(stream_id, None)
            due_ms = self._table.due_ms("gone")
            done = self._do(lambda db: self._file.remove(db, stream_id, due_ms), _as_it_is)
            self.news.notify(stream_id)
            self.room.notify(stream_id)
            await done

    async def expire(self) -> int:
        """Let old streams be gone, forget older ones."""
        over, gone = self._table.expired()
        await asyncio.gather(*map(self.remove, over))
        for stream_id in gone:
            self._table.forget(stream_id)
        if gone:
            await self._do(lambda db: self._file.forget(db, gone), _as_it_is)
        return len(over)

    async def close(self) -> None:
        """Write down everything, synced, and close the file."""
        await self._do(lambda _: None, _as_it_is)
        await self._journal.close()

    def _do(self, work: Callable[[sqlite3.Connection], R], then: Callable[[R], T]) -> "asyncio.Future[T]":
        acks, self._acks = self._acks, {}

        def work_and_acks(db: sqlite3.Connection) -> R:
            self._file.ack(db, acks)
            return work(db)

        return self._journal.do(work_and_acks if acks else work, then)


def _as_it_is(result: R) -> R:
    return result
