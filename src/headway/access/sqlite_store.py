"""Tokens in an SQLite file: of one machine, where the command may write while a gateway reads (WAL).

All calls run on one thread of the store's own, which alone uses the connection. The file is opened when it is first
needed, and again when another one lies at its path: what was deleted or replaced must not go on deciding who may call.
Tokens are in the file itself, not in the log beside it, once a call that wrote them returns: a copy of the file is whole.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from headway.access.sqlite_schema import (
    COLUMNS,
    PLACES,
    check_database,
    drop_log,
    identity,
    log_path,
    make_database,
    row_of,
    token_of,
)
from headway.access.stored_token import StoredToken
from headway.access.token_store import MAX_STANDING_BYTES, STANDING_DAYS, Failure, StoreFailed

T = TypeVar("T")
Connect = Callable[[Path, float], sqlite3.Connection]

_STANDING_S: Final = STANDING_DAYS * 86_400
_INTO_THE_FILE: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
"""Does less, and raises nothing, while others read (sqlite.org/pragma.html)."""
_FAILURES: Final[Mapping[int, Failure]] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_CANTOPEN: "gone",
    sqlite3.SQLITE_PERM: "gone",
    sqlite3.SQLITE_AUTH: "gone",
    sqlite3.SQLITE_CORRUPT: "corrupted",
    sqlite3.SQLITE_NOTADB: "corrupted",
    sqlite3.SQLITE_ERROR: "corrupted",  # such as a table that is not there
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CONSTRAINT: "refused",
}
"""By primary result code (sqlite.org/rescode.html)."""
_LEAVE_OPEN: Final = frozenset[Failure]({"locked", "read_only", "full", "refused"})
"""What is wrong with a statement or the moment, not with the connection."""


def connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Open a database that exists, waiting so long for locks of others; raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )  # used by one thread at a time, made on it and closed on it


class SqliteTokenStore:
    """A `TokenStore` in the file `path`, which is made if there is none and `create` allows it."""

    def __init__(
        self, path: Path, *, create: bool = True, timeout_s: float = 0.5, connect: Connect = connect
    ) -> None:
        self._path = path
        self._may_create = create
        self._timeout_s = timeout_s
        self._connect = connect
        self._thread = ThreadPoolExecutor(1, "headway-tokens")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None

    @property
    def place(self) -> str:
        """Its path."""
        return str(self._path)

    async def create(self, token: StoredToken) -> None:
        """As `TokenStore.create`."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(f"INSERT INTO tokens ({COLUMNS}) VALUES ({PLACES})", row_of(token))
            connection.execute(_INTO_THE_FILE)

        await self._run(work)

    async def find_by_digest(self, digest: bytes) -> StoredToken | None:
        """As `TokenStore.find_by_digest`."""
        return await self._run(lambda connection: self._one(connection, "digest", digest))

    async def list(self) -> Sequence[StoredToken]:
        """As `TokenStore.list`."""
        statement = f"SELECT {COLUMNS} FROM tokens ORDER BY created_s, token_id"
        rows = await self._run(lambda connection: connection.execute(statement).fetchall())
        return [token_of(row, self.place) for row in rows]

    async def show(self, token_id: str) -> StoredToken | None:
        """As `TokenStore.show`."""
        return await self._run(lambda connection: self._one(connection, "token_id", token_id))

    async def revoke(self, token_id: str, now_s: int) -> StoredToken | None:
        """As `TokenStore.revoke`."""
        statement = "UPDATE tokens SET revoked_s = ? WHERE token_id = ? AND revoked_s IS NULL"

        def work(connection: sqlite3.Connection) -> StoredToken | None:
            connection.execute(statement, (now_s, token_id))
            connection.execute(_INTO_THE_FILE)
            return self._one(connection, "token_id", token_id)

        return await self._run(work)

    async def get_standing(self, token_id: str) -> bytes | None:
        """As `TokenStore.get_standing`; old ones go when another one is kept."""
        statement = "SELECT standing FROM standings WHERE token_id = ?"
        row = await self._run(lambda connection: connection.execute(statement, (token_id,)).fetchone())
        return None if row is None else bytes(row[0])

    async def put_standing(self, token_id: str, standing: bytes, now_s: int) -> None:
        """As `TokenStore.put_standing`."""
        if len(standing) > MAX_STANDING_BYTES:
            raise ValueError(f"a standing has at most {MAX_STANDING_BYTES} bytes")

        def work(connection: sqlite3.Connection) -> None:
            # Not waiting for the disk: a standing may be lost with the power, lookups behind it must not wait.
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                with connection:  # both or none
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("DELETE FROM standings WHERE updated_s < ?", (now_s - _STANDING_S,))
                    connection.execute(
                        "INSERT OR REPLACE INTO standings VALUES (?, ?, ?)", (token_id, standing, now_s)
                    )
            finally:
                connection.execute("PRAGMA synchronous = FULL")

        await self._run(work)

    async def get_key_check(self) -> bytes | None:
        """As `TokenStore.get_key_check`."""
        return await self._run(_key_check)

    async def agree_on_key(self, check: bytes) -> bytes:
        """As `TokenStore.agree_on_key`."""

        def work(connection: sqlite3.Connection) -> bytes:
            agreed = _key_check(connection)
            if agreed is None:
                connection.execute("INSERT OR IGNORE INTO facts VALUES ('key_check', ?)", (check,))
                agreed = _key_check(connection)
            return agreed or b""

        return await self._run(work)

    async def close(self) -> None:
        """As `TokenStore.close`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)  # it has nothing left to do

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._carry_out, work)

    def _carry_out(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._connected())
        except sqlite3.Error as error:
            failure = _failure(error)
            if failure not in _LEAVE_OPEN:
                self._disconnect()
            raise StoreFailed(failure, self.place) from error
        except OSError as error:  # the connection stays: it tells whose log lies there
            raise StoreFailed("gone", self.place) from error

    def _one(self, connection: sqlite3.Connection, column: str, value: object) -> StoredToken | None:
        row = connection.execute(f"SELECT {COLUMNS} FROM tokens WHERE {column} = ?", (value,)).fetchone()
        return None if row is None else token_of(row, self.place)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None:
            if self._file == identity(self._path):
                return self._connection
            # What the old file left beside it: SQLite would apply it to the new one.
            drop_log(self._path, self._log)
            self._disconnect()
        if self._may_create and not self._path.exists():
            make_database(self._path)
        self._may_create = False  # one that vanishes later was not meant to be empty
        self._file = identity(self._path)
        self._connection = self._connect(self._path, self._timeout_s)
        try:
            check_database(self._connection, self.place)
            self._log = identity(log_path(self._path))
        except BaseException:
            self._disconnect()
            raise
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _key_check(connection: sqlite3.Connection) -> bytes | None:
    row = connection.execute("SELECT value FROM facts WHERE name = 'key_check'").fetchone()
    return None if row is None else bytes(row[0])


def _failure(error: sqlite3.Error) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):  # of the module itself: a text that is not UTF-8, say
        return "corrupted" if isinstance(error, sqlite3.OperationalError) else "failing"
    return _FAILURES.get(code & 0xFF, "failing")
