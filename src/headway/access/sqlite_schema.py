"""The tables of a SQLite store of tokens: made whole or not at all, recognised, and read into values."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headway.access.stored_token import StoredToken
from headway.access.token_store import StoreFailed

APPLICATION_ID: Final = 0x48_57_61_74  # "HWat"
SCHEMA_VERSION: Final = 1

_SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE tokens (
    token_id       TEXT PRIMARY KEY,
    digest         BLOB NOT NULL UNIQUE,
    tenant         TEXT NOT NULL,
    user           TEXT NOT NULL,
    service_class  TEXT NOT NULL,
    kind           TEXT NOT NULL,
    requests_per_s REAL,
    tokens_per_min INTEGER,
    max_concurrent INTEGER,
    note           TEXT NOT NULL,
    created_s      INTEGER NOT NULL,
    expires_s      INTEGER,
    revoked_s      INTEGER
) WITHOUT ROWID;
CREATE TABLE standings (
    token_id   TEXT PRIMARY KEY,
    standing   BLOB NOT NULL,
    updated_s  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX standings_by_age ON standings (updated_s);
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

_LIMITS: Final = ("requests_per_s", "tokens_per_min", "max_concurrent")
_PLAIN: Final = (
    *("token_id", "digest", "tenant", "user", "service_class", "kind"),
    *("note", "created_s", "expires_s", "revoked_s"),
)
COLUMNS: Final = ", ".join((*_PLAIN, *_LIMITS))
PLACES: Final = ", ".join("?" * len((*_PLAIN, *_LIMITS)))


def make_database(path: Path) -> None:
    """Make an empty store at `path`, for its owner alone, unless there is one; raises OSError, sqlite3.Error.

    Made elsewhere and only then put in its place, as no two processes can turn one file to WAL at once.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        with _alone_in(path.parent):
            if not path.exists():
                _drop(path)  # what is left of a file that was deleted: SQLite would apply it to ours
                os.link(beside, path)
    finally:
        os.unlink(beside)


def log_path(path: Path) -> Path:
    """Return where SQLite keeps what is written and not yet in the file (sqlite.org/wal.html)."""
    return Path(f"{path}-wal")


def drop_log(path: Path, log: tuple[int, int] | None) -> None:
    """Delete what lies beside a file if it is this log, of another file that lay at the path before; raises OSError."""
    with _alone_in(path.parent):
        if log is not None and log_path(path).exists() and identity(log_path(path)) == log:
            _drop(path)


def identity(path: Path) -> tuple[int, int]:
    """Return which file lies at a path; raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _drop(path: Path) -> None:
    for beside in (log_path(path), Path(f"{path}-shm")):
        beside.unlink(missing_ok=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that make a store in this folder waiting."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_database(connection: sqlite3.Connection, place: str) -> None:
    """Raise StoreFailed for a database of something else or of a newer Headway, or sqlite3.Error."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID or version < 1:
        raise StoreFailed("corrupted", place)
    if version > SCHEMA_VERSION:
        raise StoreFailed("newer", place)


def row_of(token: StoredToken) -> tuple[object, ...]:
    """Return a token's values in the order of `COLUMNS`."""
    plain = tuple(getattr(token, name) for name in _PLAIN)
    return (*plain, *(getattr(token.limits, name) for name in _LIMITS))


def token_of(row: Sequence[object], place: str) -> StoredToken:
    """Return the token of a row of `COLUMNS`; raises StoreFailed for values that no token has."""
    fields = dict(zip(_PLAIN, row, strict=False))
    limits = dict(zip(_LIMITS, row[len(_PLAIN) :], strict=True))
    try:
        return msgspec.convert({**fields, "limits": limits}, StoredToken)
    except msgspec.ValidationError:
        raise StoreFailed("corrupted", place) from None
