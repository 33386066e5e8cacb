"""One resumable answer: what its generation brings goes into the log, whoever reads it or whether anybody does.

It is opened, which gives it a name, with the first tokens: a request that is refused before gets its status, and no stream.
It knows no HTTP.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from headway.core.clock import Clock
from headway.core.errors import Draining, HeadwayError, InternalError, StreamLogUnavailable, StreamUnread
from headway.core.events import Hook, StreamAbandoned
from headway.core.hooks import emit
from headway.gateway.answer import Answer
from headway.gateway.door import Call
from headway.gateway.generation import Generation
from headway.gateway.request_record import CLIENT_CLOSED_STATUS, RequestRecord
from headway.gateway.step_record import encode_step
from headway.gateway.stream_entries import entries_of, error_entries, last_entries
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.pressure import PATIENCE_NS
from headway.streams.record import Entry
from headway.streams.writer import StreamOver, StreamWriter

logger = logging.getLogger("headway.gateway")


class StreamTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What all streams of a gateway have in common.

    grace_s      how long a generation goes on while nobody reads it
    patience_ns  how long it waits for its reader to acknowledge something when the log is full
    keeps_steps  whether the log keeps what another process needs to go on, and streams therefore survive this one
    """

    grace_s: float = 30.0
    patience_ns: int = PATIENCE_NS
    keeps_steps: bool = False


class StreamRun:
    """A generation and its stream; `run` is to be a task of its own.

    tell     hears of its being abandoned
    meta     what another process needs to go on with it
    writer   of a stream that was begun elsewhere; None = it begins here
    opened   done once the stream has its name; or what was raised before
    broken   what keeps the rest of the answer out of the log; done only then
    """

    def __init__(
        self,
        stream_id: str,
        *,
        log: StreamLog,
        clock: Clock,
        terms: StreamTerms,
        owner: str,
        generation: Generation,
        answer: Answer,
        record: RequestRecord,
        limited: Call,
        tell: Hook | None = None,
        meta: bytes = b"",
        writer: StreamWriter | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stream_id = stream_id
        self.opened: asyncio.Future[None] = loop.create_future()
        self.broken: asyncio.Future[HeadwayError] = loop.create_future()
        self._log = log
        self._clock = clock
        self._terms = terms
        self._owner = owner
        self._generation = generation
        self._answer = answer
        self._record = record
        self._limited = limited
        self._tell = tell
        self._meta = meta
        self._writer = writer
        self._steps = b""  # what the generation did since the last append
        self._opening: asyncio.Future[None] | None = None
        self._num_readers = 0
        self._grace: asyncio.TimerHandle | None = None
        self._end: HeadwayError | None = None
        self._is_abandoned = False
        self._is_over = False
        self.opened.add_done_callback(_look_at)  # whoever waited may be gone
        if writer is not None:
            self.opened.set_result(None)
            self._start_grace()

    @property
    def endpoint(self) -> str:
        """Path of the route it was asked on."""
        return self._record.endpoint

    async def run(self) -> None:
        """Write the answer to its end. Raises nothing but a cancellation."""
        try:
            async with self._generation as generation:
                async for events in generation.events():
                    if self._terms.keeps_steps:
                        self._steps += encode_step(generation.step)
                    await self._write(entries_of(self._answer, events))
            await self._finish()
        except HeadwayError as error:
            await self._fail(error)
        except (LeaseLost, StreamOver):  # it was removed, or is another gateway's now
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
        except asyncio.CancelledError:
            draining = Draining("The server is shutting down; send the request again.")
            if not self.opened.done():
                self.opened.set_exception(draining)
            if not self._terms.keeps_steps:  # else the next process goes on with it
                self._break(draining)
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
            raise
        except Exception as error:
            self._complain(error)
            await self._fail(InternalError("The server failed unexpectedly; its log has the details."))
        finally:
            self._limited.use(self._record.num_used(self._generation.usage))
            await self._limited.end()
            self._is_over = True
            self._stop_grace()
            if not self.opened.done():
                self.opened.cancel()

    async def open(self) -> None:
        """Give the stream its name now, though nothing has come yet. Raises StreamLogFull, StreamLogUnavailable."""
        if self._writer is not None:
            return
        if self._opening is None:
            self._begin((), b"")
        assert self._opening is not None
        # Whoever stops waiting must not leave a stream in the log that nobody here knows of.
        await asyncio.shield(self._opening)

    def _begin(self, entries: Sequence[Entry], steps: bytes) -> None:
        self._opening = asyncio.ensure_future(self._create(entries, steps))
        self._opening.add_done_callback(_look_at)

    async def _create(self, entries: Sequence[Entry], steps: bytes) -> None:
        lease = await self._log.create(self.stream_id, self._owner, self._meta, entries, steps)
        self._writer = StreamWriter(
            self._log, lease, len(entries), clock=self._clock, patience_ns=self._terms.patience_ns
        )
        self.opened.set_result(None)

    async def renew(self) -> None:
        """Keep the stream from being taken for an orphan's. Raises StreamLogUnavailable."""
        if self._writer is not None and not self._is_over:
            try:
                await self._writer.renew()
            except LeaseLost:  # removed or taken over by another gateway: nobody is to have what it makes
                self._generation.cancel()

    def cancel(self, error: HeadwayError | None = None) -> None:
        """End the generation within a step; `error`: what the stream then ends with."""
        self._end = self._end or error
        self._generation.cancel()

    def attach(self) -> None:
        """Somebody reads."""
        self._num_readers += 1
        self._stop_grace()

    def detach(self) -> None:
        """Somebody left: without a reader the generation goes on for the time of grace, unless nobody knows its name."""
        self._num_readers -= 1
        if self._num_readers or self._is_over:
            return
        if self._writer is None:
            self._limited.note_answer(abandoned=True)
            self.cancel(StreamUnread("The client left before the stream had a name."))
        else:
            self._start_grace()

    def _start_grace(self) -> None:
        self._grace = asyncio.get_running_loop().call_later(self._terms.grace_s, self._abandon)

    def _abandon(self) -> None:
        self._is_abandoned = True
        self._limited.note_answer(abandoned=True)
        waited = f"{self._terms.grace_s:g} s"
        self.cancel(StreamUnread(f"Nobody read the stream for {waited}; send the request again."))

    def _stop_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _write(self, entries: list[Entry]) -> None:
        steps = b""
        if entries:
            steps, self._steps = self._steps, b""
        if self._writer is None and self._opening is None:
            self._begin(entries, steps)
            entries = []
        await self.open()
        if entries:
            assert self._writer is not None
            await self._writer.write(entries, steps)

    async def _finish(self) -> None:
        usage = self._generation.usage
        if self._end is not None:
            await self._fail(self._end)
            return
        await self.open()
        assert self._writer is not None
        await self._writer.end(last_entries(self._answer, usage))
        self._record.end(self._generation.outcome, status=200, usage=usage)
        if self._num_readers:  # else nobody knows whether it will be read
            self._limited.note_answer(abandoned=False)

    async def _fail(self, error: HeadwayError) -> None:
        if self._is_abandoned:
            emit(self._tell, StreamAbandoned(num_unacknowledged=await self._num_unacknowledged()))
        if error is self._end:
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
        else:
            self._record.end_with_error(error, self._generation.usage)
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._writer is None:
            if not self.opened.done():
                self.opened.set_exception(error)
            return
        try:
            await self._writer.fail(*error_entries(self._answer, error))
        except (LeaseLost, StreamOver):
            return
        except Exception as failure:  # whatever it is, nobody is to wait for what does not come
            if not isinstance(failure, HeadwayError):
                self._complain(failure)
            self._break(error)

    async def _num_unacknowledged(self) -> int:
        try:
            record = await self._log.find(self.stream_id)
        except StreamLogUnavailable:
            return 0
        return 0 if record is None else record.last_seq - record.acked

    def _complain(self, error: Exception) -> None:
        logger.error("a stream failed", exc_info=error, extra={"request_id": self._record.request_id})

    def _break(self, error: HeadwayError) -> None:
        self.broken.set_result(error)
        self._log.news.notify(self.stream_id)


def _look_at(opened: "asyncio.Future[None]") -> None:
    if not opened.cancelled():
        opened.exception()
