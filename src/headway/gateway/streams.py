"""Resumable streams as the gateway keeps them: their log, and the runs that write into it. It knows no HTTP.

Owner of a stream is the public id of the token that started it; nobody else finds it, whatever he knows of its name.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from headway.core.clock import Clock
from headway.core.errors import HeadwayError, ResyncRequired, StreamLogUnavailable, Unavailable
from headway.core.events import Hook
from headway.gateway.adoptions import Adoptions
from headway.gateway.answer import Answer
from headway.gateway.door import Call
from headway.gateway.generation import Generation
from headway.gateway.request_record import RequestRecord
from headway.gateway.stored_call import endpoint_of
from headway.gateway.stream_entries import lone_error_entries
from headway.gateway.stream_run import StreamRun, StreamTerms
from headway.streams.ids import Cursor, check_stream_id, new_stream_id, stream_not_found
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.record import Recovery, StreamRecord, attach
from headway.streams.writer import StreamOver, StreamWriter

logger = logging.getLogger("headway.gateway")

HOUSEKEEPING_S = 5.0
"""A third of a lease."""
DEFAULT_TERMS = StreamTerms()


class Begun(NamedTuple):
    """A stream that was begun elsewhere, with what is left to do."""

    generation: Generation
    answer: Answer
    record: RequestRecord


GoOn = Callable[[Recovery], Awaitable[Begun]]
"""Makes what is left of a stream; raises Unavailable while that cannot be, another HeadwayError where it never can."""


class Streams:
    """All resumable streams of a gateway.

    ping_s    after how long without an event a comment keeps a connection from being closed as idle
    tell      hears of streams that were abandoned
    """

    def __init__(
        self,
        log: StreamLog,
        clock: Clock,
        terms: StreamTerms = DEFAULT_TERMS,
        *,
        ping_s: float = 10.0,
        tell: Hook | None = None,
    ) -> None:
        self.log = log
        self.terms = terms
        self.ping_s = ping_s
        self._clock = clock
        self._new_run = partial(StreamRun, log=log, clock=clock, terms=terms, tell=tell)
        self._runs: dict[str, StreamRun] = {}
        self._num_readers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._adopting: set[str] = set()
        self._adoptions = Adoptions()
        self._housekeeping: asyncio.Task[None] | None = None

    def begin(self, go_on: GoOn) -> None:
        """Keep house from now on: keep leases, let streams expire, and go on with those whose gateway is gone."""
        self._housekeeping = asyncio.create_task(self._keep_house(go_on))

    def start(
        self,
        owner: str,
        generation: Generation,
        answer: Answer,
        record: RequestRecord,
        limited: Call,
        meta: bytes,
    ) -> tuple[StreamRun, "asyncio.Task[None]"]:
        """Begin an answer that outlives its connection; return it, and the task that carries it out."""
        run = self._new_run(
            new_stream_id(secrets.token_bytes),
            owner=owner,
            generation=generation,
            answer=answer,
            record=record,
            limited=limited,
            meta=meta,
        )
        limited.is_kept = True
        return run, self._carry_out(run)

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

    def endpoint_of(self, record: StreamRecord) -> str:
        """Return the path of the route a stream was asked on; "" where that is not known any more."""
        run = self._runs.get(record.stream_id)
        return endpoint_of(record.meta) if run is None else run.endpoint

    def run_of(self, stream_id: str) -> StreamRun | None:
        """Return the run that writes a stream here; None = it is over, or another gateway's."""
        return self._runs.get(stream_id)

    @contextmanager
    def reading(self, stream_id: str) -> Iterator[None]:
        """Count as a reader of a stream."""
        self._num_readers[stream_id] += 1
        if (run := self._runs.get(stream_id)) is not None:
            run.attach()
        try:
            yield
        finally:
            self._num_readers[stream_id] -= 1
            if not self._num_readers[stream_id]:
                del self._num_readers[stream_id]
            if (run := self._runs.get(stream_id)) is not None:
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

    def _carry_out(self, run: StreamRun) -> "asyncio.Task[None]":
        self._runs[run.stream_id] = run

        def over() -> None:
            if (
                self._runs.get(run.stream_id) is run
            ):  # else it was taken over, came back, and goes on here anew
                del self._runs[run.stream_id]

        return self._task(run.run(), over)

    def _task(self, work: Coroutine[object, object, None], over: Callable[[], None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            over()

        task.add_done_callback(done)
        return task

    async def _keep_house(self, go_on: GoOn) -> None:
        is_in_order = True
        while True:
            try:
                await asyncio.gather(*(run.renew() for run in self._runs.values()))
                await self.log.expire()
                self.log.room.notify_all()  # what others left free, or acknowledged elsewhere, is room too
                self._adoptions.forget(self._clock.now_ns())
                for stream_id in await self.log.orphans():
                    if self._adoptions.may(stream_id, self._clock.now_ns()):
                        await self._adopt(stream_id, go_on)
                is_in_order = True
            except HeadwayError as error:
                if is_in_order:  # the same every few seconds would say no more
                    logger.warning("streams cannot be kept in order for now: %s", error.message)
                is_in_order = False
            except Exception:  # whatever it is, leases must be kept the next time
                logger.exception("streams could not be kept in order")
            await asyncio.sleep(HOUSEKEEPING_S)

    async def _adopt(self, stream_id: str, go_on: GoOn) -> None:
        """Take over a stream whose gateway is gone. The rest, which may wait for an engine, must not hold up the others."""
        if stream_id in self._adopting or (recovery := await self.log.take_over(stream_id)) is None:
            return
        self._adopting.add(stream_id)
        self._task(self._go_on(recovery, go_on), partial(self._adopting.discard, stream_id))

    async def _go_on(self, recovery: Recovery, go_on: GoOn) -> None:
        """Go on with a stream, end it with an error, or leave it to the next who can: never a splice."""
        record = recovery.record
        writer = StreamWriter(
            self.log,
            recovery.lease,
            record.last_seq,
            clock=self._clock,
            patience_ns=self.terms.patience_ns,
        )
        try:
            generation, answer, request = await go_on(recovery)
            await writer.renew()  # somebody else may have it by now
        except (LeaseLost, Unavailable):
            return
        except Exception as error:
            if not isinstance(error, HeadwayError):
                logger.exception("a stream of another process could not be read")
            told = ResyncRequired("The answer cannot go on where it was; send the request again.")
            with suppress(LeaseLost, StreamOver, StreamLogUnavailable):  # the lease ends: it is tried again
                await writer.fail(*lone_error_entries(endpoint_of(record.meta), told))
            return
        self._adoptions.note(record.stream_id, self._clock.now_ns())
        logger.info("going on with a stream of another process", extra={"request_id": request.request_id})
        run = self._new_run(
            record.stream_id,
            owner=record.owner,
            generation=generation,
            answer=answer,
            record=request,
            limited=Call(),
            writer=writer,
        )
        for _ in range(self._num_readers[record.stream_id]):
            run.attach()
        self._carry_out(run)
