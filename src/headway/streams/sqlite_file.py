"""Streams as rows of an SQLite database: the statements, and what a file that another process left behind is worth.

Its methods run on the journal's thread, inside a transaction.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headway.streams.journal import open_database
from headway.streams.record import EndState, Entry, StreamRecord

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE boot (id TEXT NOT NULL);
CREATE TABLE streams (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, created_ms INTEGER NOT NULL, meta BLOB NOT NULL,
    epoch INTEGER NOT NULL, state TEXT NOT NULL, acked INTEGER NOT NULL, due_ms INTEGER NOT NULL
);
CREATE TABLE events (
    stream INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL, name TEXT,
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;
CREATE TABLE progress (n INTEGER PRIMARY KEY, stream INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX progress_of_stream ON progress (stream, n);
"""
_CLOSED_PROPERLY: Final = ""

Stored = tuple[StreamRecord, tuple[Entry, ...], int]
"""A stream, its events and when its state ends: what `StreamTable.add` takes."""


class Append(NamedTuple):
    """One append."""

    stream_id: str
    after: int
    entries: tuple[Entry, ...]
    progress: bytes
    end: EndState | None
    due_ms: int


def boot_id() -> str:
    """Return what names the machine's present boot (proc_sys_kernel(5)). Raises OSError."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class StreamFile:
    """Owns the database; rows of a stream have a short key instead of its name."""

    def __init__(self, path: Path, boot: Callable[[], str]) -> None:
        self._path = path
        self._boot = boot
        self._keys: dict[str, int] = {}
        self._next_key = 1

    def connect(self) -> sqlite3.Connection:
        """Open the file, create what it lacks, and note which boot it is used in. Raises sqlite3.Error, OSError."""
        db = open_database(self._path)
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"its version is {version}, not {_SCHEMA_VERSION}")
            db.execute(
                "PRAGMA synchronous = FULL"
            )  # the boot must be on disk before anything that may be lost
            db.execute("BEGIN IMMEDIATE")
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            now = self._boot()
            before = [row[0] for row in db.execute("SELECT id FROM boot")]
            if before and before[0] not in (now, _CLOSED_PROPERLY):
                db.execute("UPDATE streams SET epoch = epoch + 1 WHERE state = 'open'")
            db.execute("DELETE FROM boot")
            db.execute("INSERT INTO boot VALUES (?)", (now,))
            db.execute("COMMIT")
            db.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            db.close()
            raise
        return db

    def close_properly(self, db: sqlite3.Connection) -> None:
        """Have everything synced and note that nothing can be lost. Outside a transaction."""
        db.execute("PRAGMA synchronous = FULL")
        db.execute("UPDATE boot SET id = ?", (_CLOSED_PROPERLY,))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def load(self, db: sqlite3.Connection) -> list[Stored]:
        """Return all streams, those that end first first; leases ended with the process that held them."""
        events: dict[int, list[Entry]] = {}
        for key, kind, data, name in db.execute(
            "SELECT stream, kind, data, name FROM events ORDER BY stream, seq"
        ):
            events.setdefault(key, []).append(Entry(kind, data, name))
        rows = db.execute(
            "SELECT key, id, owner, created_ms, meta, epoch, state, acked, due_ms FROM streams ORDER BY due_ms, key"
        )
        stored = []
        for key, stream_id, owner, created_ms, meta, epoch, state, acked, due_ms in rows:
            self._keys[stream_id] = key
            self._next_key = max(self._next_key, key + 1)
            entries = tuple(events.get(key, ()))
            record = StreamRecord(
                stream_id=stream_id,
                owner=owner,
                created_ms=created_ms,
                meta=meta,
                epoch=epoch,
                state=state,
                acked=acked,
                last_seq=acked + len(entries),
            )
            stored.append((record, entries, 0 if state == "open" else due_ms))
        return stored

    def create(self, db: sqlite3.Connection, record: StreamRecord) -> None:
        """Write a new stream."""
        key, self._next_key = self._next_key, self._next_key + 1
        db.execute(
            "INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                key, record.stream_id, record.owner, record.created_ms, record.meta, record.epoch, record.state,
                record.acked,
            ),
        )  # fmt: skip
        self._keys[record.stream_id] = key

    def append(self, db: sqlite3.Connection, row: Append) -> None:
        """Write what one append brought."""
        key = self._keys[row.stream_id]
        db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            [
                (key, seq, entry.kind, entry.data, entry.name)
                for seq, entry in enumerate(row.entries, row.after + 1)
            ],
        )
        if row.end is not None:
            db.execute("UPDATE streams SET state = ?, due_ms = ? WHERE key = ?", (row.end, row.due_ms, key))
            db.execute("DELETE FROM progress WHERE stream = ?", (key,))
        elif row.progress:
            db.execute("INSERT INTO progress (stream, data) VALUES (?, ?)", (key, row.progress))

    def ack(self, db: sqlite3.Connection, acks: Mapping[str, int]) -> None:
        """Delete acknowledged events."""
        rows = [(seq, self._keys[stream_id]) for stream_id, seq in acks.items()]
        db.executemany("DELETE FROM events WHERE seq <= ? AND stream = ?", rows)
        db.executemany("UPDATE streams SET acked = ? WHERE key = ?", rows)

    def progress(self, db: sqlite3.Connection, stream_id: str) -> tuple[bytes, ...]:
        """Return a stream's progress, piece by piece."""
        rows = db.execute("SELECT data FROM progress WHERE stream = ? ORDER BY n", (self._keys[stream_id],))
        return tuple(data for (data,) in rows)

    def new_epoch(self, db: sqlite3.Connection, stream_id: str) -> None:
        """Delete events and progress."""
        key = self._keys[stream_id]
        self._delete_contents(db, key)
        db.execute("UPDATE streams SET epoch = epoch + 1, acked = 0 WHERE key = ?", (key,))

    def remove(self, db: sqlite3.Connection, stream_id: str, due_ms: int) -> None:
        """Delete all but the name and the owner."""
        key = self._keys[stream_id]
        self._delete_contents(db, key)
        db.execute("UPDATE streams SET state = 'gone', meta = x'', due_ms = ? WHERE key = ?", (due_ms, key))

    def forget(self, db: sqlite3.Connection, stream_ids: Sequence[str]) -> None:
        """Delete streams, with all that a full disk may have kept from being deleted before: keys are used again."""
        for stream_id in stream_ids:
            for (key,) in db.execute("SELECT key FROM streams WHERE id = ?", (stream_id,)).fetchall():
                self._delete_contents(db, key)
                db.execute("DELETE FROM streams WHERE key = ?", (key,))
            self._keys.pop(stream_id, None)

    def _delete_contents(self, db: sqlite3.Connection, key: int) -> None:
        db.execute("DELETE FROM events WHERE stream = ?", (key,))
        db.execute("DELETE FROM progress WHERE stream = ?", (key,))
