"""Resumable streams as the gateway keeps them: their log, and the runs that write into it. It knows no HTTP.

Owner of a stream is the public id of the token that started it; nobody else finds it, whatever he knows of its name.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from headway.core.clock import Clock
from headway.core.errors import HeadwayError
from headway.gateway.answer import Answer
from headway.gateway.door import Call
from headway.gateway.generation import Generation
from headway.gateway.request_record import RequestRecord
from headway.gateway.stream_run import StreamRun
from headway.streams.ids import Cursor, check_stream_id, stream_not_found
from headway.streams.log import StreamLog
from headway.streams.pressure import PATIENCE_NS
from headway.streams.record import StreamRecord, attach

logger = logging.getLogger("headway.gateway")

EXPIRE_EVERY_S = 5.0


class Streams:
    """All resumable streams of a gateway.

    grace_s   how long a generation goes on while nobody reads it
    patience_ns  how long a generation waits for its reader to acknowledge something when the log is full
    ping_s    after how long without an event a comment keeps a connection from being closed as idle
    """

    def __init__(
        self,
        log: StreamLog,
        clock: Clock,
        *,
        grace_s: float = 30.0,
        patience_ns: int = PATIENCE_NS,
        ping_s: float = 10.0,
    ) -> None:
        self.log = log
        self.ping_s = ping_s
        self._clock = clock
        self._grace_s = grace_s
        self._patience_ns = patience_ns
        self._runs: dict[str, StreamRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._housekeeping: asyncio.Task[None] | None = None

    def start(
        self, owner: str, generation: Generation, answer: Answer, record: RequestRecord, limited: Call
    ) -> tuple[StreamRun, "asyncio.Task[None]"]:
        """Begin an answer that outlives its connection; return it, and the task that carries it out."""
        run = StreamRun(
            log=self.log,
            clock=self._clock,
            random_bytes=secrets.token_bytes,
            owner=owner,
            generation=generation,
            answer=answer,
            record=record,
            limited=limited,
            grace_s=self._grace_s,
            patience_ns=self._patience_ns,
        )
        limited.is_kept = True
        self._runs[run.stream_id] = run
        task = asyncio.create_task(self._carry_out(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._housekeeping is None:
            self._housekeeping = asyncio.create_task(self._keep_house())
        return run, task

    async def find(self, stream_id: str, owner: str, cursor: Cursor) -> tuple[StreamRecord, int]:
        """Return a stream and the number to go on after. Raises StreamNotFound, ResyncRequired, StreamLogUnavailable."""
        record = await self.owned(stream_id, owner)
        return record, attach(record, owner, cursor)

    async def owned(self, stream_id: str, owner: str) -> StreamRecord:
        """Return a stream. Raises StreamNotFound unless it is the owner's, StreamLogUnavailable."""
        record = await self.log.find(check_stream_id(stream_id))
        if record is None or record.owner != owner:
            raise stream_not_found()
        return record

    def run_of(self, stream_id: str) -> StreamRun | None:
        """Return the run that writes a stream here; None = it is over, or another gateway's."""
        return self._runs.get(stream_id)

    @contextmanager
    def reading(self, stream_id: str) -> Iterator[StreamRun | None]:
        """Count as a reader of a stream."""
        run = self._runs.get(stream_id)
        if run is not None:
            run.attach()
        try:
            yield run
        finally:
            if run is not None:
                run.detach()

    async def remove(self, stream_id: str) -> None:
        """Cancel a stream's generation and let it be gone."""
        run = self._runs.get(stream_id)
        await self.log.remove(stream_id)
        if run is not None:
            run.cancel()
        self.log.news.notify(stream_id)

    async def close(self) -> None:
        """Cut off what runs and close the log. Idempotent."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self.log.close()

    async def _carry_out(self, run: StreamRun) -> None:
        try:
            await run.run()
        finally:
            del self._runs[run.stream_id]

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            try:
                await self.log.expire()
            except HeadwayError as error:
                logger.warning("streams could not be expired: %s", error.message)
