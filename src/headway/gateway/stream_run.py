"""One resumable answer: what its generation brings goes into the log, whoever reads it or whether anybody does.

It is opened, which gives it a name, with the first tokens: a request that is refused before gets its status, and no stream.
It knows no HTTP.
"""

import asyncio
import logging
from collections.abc import Callable

from headway.core.clock import Clock
from headway.core.errors import Draining, HeadwayError, InternalError, StreamUnread
from headway.gateway.answer import Answer
from headway.gateway.door import Call
from headway.gateway.generation import Generation
from headway.gateway.request_record import CLIENT_CLOSED_STATUS, RequestRecord
from headway.gateway.stream_entries import entries_of, error_entries, last_entries
from headway.streams.ids import new_stream_id
from headway.streams.log import LeaseLost, StreamLog
from headway.streams.record import Entry
from headway.streams.writer import StreamOver, StreamWriter

logger = logging.getLogger("headway.gateway")


class StreamRun:
    """A generation and its stream; `run` is to be a task of its own.

    opened   the stream's id, once it has one; or what was raised before
    broken   what keeps the rest of the answer out of the log; done only then
    """

    def __init__(
        self,
        *,
        log: StreamLog,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        owner: str,
        generation: Generation,
        answer: Answer,
        record: RequestRecord,
        limited: Call,
        grace_s: float,
        patience_ns: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stream_id = new_stream_id(random_bytes)
        self.opened: asyncio.Future[str] = loop.create_future()
        self.broken: asyncio.Future[HeadwayError] = loop.create_future()
        self._log = log
        self._clock = clock
        self._owner = owner
        self._generation = generation
        self._answer = answer
        self._record = record
        self._limited = limited
        self._grace_s = grace_s
        self._patience_ns = patience_ns
        self._writer: StreamWriter | None = None
        self._opening = asyncio.Lock()
        self._num_readers = 0
        self._grace: asyncio.TimerHandle | None = None
        self._end: HeadwayError | None = None
        self._is_over = False
        self.opened.add_done_callback(
            lambda opened: opened.cancelled() or opened.exception()
        )  # whoever waited may be gone

    async def run(self) -> None:
        """Write the answer to its end. Raises nothing but a cancellation."""
        try:
            async with self._generation as generation:
                async for events in generation.events():
                    await self._write(entries_of(self._answer, events))
            await self._finish()
        except HeadwayError as error:
            await self._fail(error)
        except (LeaseLost, StreamOver):  # it was removed, or is another gateway's now
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
        except asyncio.CancelledError:
            self.broken.set_result(Draining("The server is shutting down; send the request again."))
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
            raise
        except Exception as error:
            logger.error("a stream failed", exc_info=error, extra={"request_id": self._record.request_id})
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
        async with self._opening:
            if self._writer is None:
                lease = await self._log.create(self.stream_id, self._owner, b"")
                self._writer = StreamWriter(
                    self._log, lease, 0, clock=self._clock, patience_ns=self._patience_ns
                )
                self.opened.set_result(self.stream_id)

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
            self.cancel(StreamUnread("The client left before the stream had a name."))
        else:
            self._grace = asyncio.get_running_loop().call_later(self._grace_s, self._abandon)

    def _abandon(self) -> None:
        self.cancel(StreamUnread(f"Nobody read the stream for {self._grace_s:g} s; send the request again."))

    def _stop_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _write(self, entries: list[Entry]) -> None:
        await self.open()
        if entries:
            assert self._writer is not None
            await self._writer.write(entries)

    async def _finish(self) -> None:
        usage = self._generation.usage
        if self._end is not None:
            await self._fail(self._end)
            return
        await self.open()
        assert self._writer is not None
        await self._writer.end(last_entries(self._answer, usage))
        self._record.end(self._generation.outcome, status=200, usage=usage)

    async def _fail(self, error: HeadwayError) -> None:
        if error is self._end:
            self._record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=self._generation.usage)
        else:
            self._record.end_with_error(error, self._generation.usage)
        if self._writer is None:
            if not self.opened.done():
                self.opened.set_exception(error)
            return
        *before, last = error_entries(self._answer, error)
        del before  # what an API closes before an error is not needed where nothing follows
        try:
            await self._writer.fail(last)
        except (LeaseLost, StreamOver):
            return
        except HeadwayError:
            self.broken.set_result(error)
