"""One thread that owns an SQLite database: all work that waits becomes one transaction, off the event loop.

So the streams of an engine's step, which ask within one turn of the loop, share a commit. It knows no streams.
"""

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headway.core.errors import StreamLogUnavailable

logger = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")
_COMMIT_FAILED = "Resumable streams cannot be written down at the moment; retry later, or without resuming."


class _Job:
    """`work` runs on the thread, inside a transaction; `then`, with its result, on the event loop once that is committed."""

    __slots__ = ("done", "then", "work")

    def __init__(
        self, work: Callable[[sqlite3.Connection], Any], then: Callable[[Any], Any], done: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.then = then
        self.done = done


class Journal:
    """`connect` opens the database, `disconnect` makes it ready to be closed: both on the thread, outside transactions."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], disconnect: Callable[[sqlite3.Connection], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect = connect
        self._disconnect = disconnect
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._has_complained = False
        self._thread = threading.Thread(target=self._run, name="stream journal", daemon=True)
        self._thread.start()

    async def opened(self) -> None:
        """Wait until the database is open; raises what opening it raised."""
        await self._opened

    def do(self, work: Callable[[sqlite3.Connection], R], then: Callable[[R], T]) -> "asyncio.Future[T]":
        """Have `work` committed, then `then` called; both in the order of the calls, even if nobody waits any more.

        The future gives what `then` returns or raises; StreamLogUnavailable when nothing was committed.
        """
        job = _Job(work, then, self._loop.create_future())
        self._jobs.put(job)
        return job.done

    async def close(self) -> None:
        """Finish what was asked for, then close the database."""
        self._jobs.put(None)
        await self._closed
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            self._tell(_fail, self._opened, error)
            return
        self._tell(self._opened.set_result, None)
        is_open = True
        while is_open:
            batch = [self._jobs.get()]
            while not self._jobs.empty():
                batch.append(self._jobs.get())
            is_open = None not in batch
            self._commit(connection, [job for job in batch if job is not None])
        try:
            self._disconnect(connection)
        except sqlite3.Error:
            logger.exception("the file of streams could not be closed properly")
        connection.close()
        self._tell(self._closed.set_result, None)

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            results = _in_transaction(connection, jobs)
        except Exception as error:
            if len(jobs) > 1:  # whoever cannot be served must not fail the others
                for job in jobs:
                    self._commit(connection, [job])
                return
            if not self._has_complained:
                self._has_complained = True
                logger.exception("a stream could not be written down; further failures are not logged")
            self._tell(_fail, jobs[0].done, StreamLogUnavailable(_COMMIT_FAILED), error)
        else:
            self._tell(_finish, jobs, results)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: nobody listens any more
            return


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database that only its owner may read, for this process alone. Raises sqlite3.Error, OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # its journal gets the same mode
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # also needs no shared memory
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _in_transaction(connection: sqlite3.Connection, jobs: Sequence[_Job]) -> list[Any]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results


def _finish(jobs: Sequence[_Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        try:
            value = job.then(result)
        except Exception as error:
            _fail(job.done, error)
        else:
            if not job.done.done():
                job.done.set_result(value)


def _fail(future: "asyncio.Future[Any]", error: Exception, cause: Exception | None = None) -> None:
    error.__cause__ = cause
    if not future.done():
        future.set_exception(error)
