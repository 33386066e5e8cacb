"""Asks one endpoint once and reads its answer to the end, over as many connections as the stream needs.

A shell: a task that reads and waits. What bytes mean is `client/reading.py`'s business, whether to go on after a cut
`client/plan.py`'s. Whoever takes the deltas closes it; closing ends the connection at once.
"""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Final

from headway.client.answer import Delta
from headway.client.ask import RESUMABLE, Ask, body_of, headers_of, key_header, takes_no_suffix
from headway.client.call import Call
from headway.client.chunks import read_error
from headway.client.failure import Failure, Kind
from headway.client.http import HttpFailure, Reply
from headway.client.plan import resume_at
from headway.client.reading import AnswerReader, Ended
from headway.client.reply_headers import retry_after_ns, should_retry
from headway.core.clock import NS_PER_S
from headway.streams.ids import Cursor

_MAX_WAITING: Final = 256
"""Deltas that nobody has taken yet, after which no more is read: the connection then holds the endpoint back."""
_MAX_ERROR_BYTES: Final = 64 << 10
_MAX_ANSWER_BYTES: Final = 16 << 20
_LINGER_S: Final = 1.0
"""How long a connection may take to end a response whose answer is whole."""
_ACK_EVERY: Final = 1024
_ACK_EVERY_BYTES: Final = 512 << 10
"""Events, or bytes: an eighth of what a Headway server keeps unacknowledged of a stream."""
_SIDE_S: Final = 10.0
"""How long a server may take to answer what nobody waits for."""


class Exchange:
    """An endpoint that is asked.

    deltas       what has come and was not taken
    end          how the answer ended; it counts once `deltas` is empty
    first_ns     when the first delta came, or the end of an answer without any
    num_resumes  how often the stream was cut and went on
    ask          the form in which it was asked in the end
    """

    def __init__(self, call: Call, place: int, due_ns: int) -> None:
        self.place = place
        self.endpoint = call.endpoints[place]
        self.deltas: deque[Delta] = deque()
        self.end: Ended | Failure | None = None
        self.first_ns: int | None = None
        self.num_resumes = 0
        no_suffix = place in call.no_suffix and call.ask.instead is not None
        self.ask: Ask = call.ask.instead if no_suffix and call.ask.instead is not None else call.ask
        self._call = call
        self._due_ns = due_ns
        self._reader = AnswerReader()
        self._heard_ns = call.clock.now_ns()
        self._room = asyncio.Event()
        self._room.set()
        self._resumed_at: Cursor | None = None
        self._acked = 0
        self._unacked_bytes = 0
        self._ack_runs = False
        self._task = asyncio.create_task(self._run())

    def take(self) -> Delta | None:
        """Return the next delta; None = there is none now."""
        if not self.deltas:
            return None
        delta = self.deltas.popleft()
        if len(self.deltas) < _MAX_WAITING:
            self._room.set()
        return delta

    def check(self) -> None:
        """Raise what went wrong in our own code, if anything did."""
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def aclose(self) -> None:
        """Close the connection, and have a resumable stream forgotten that was not read to its end."""
        if isinstance(self.end, Ended):
            self._call.background(self._linger())
            return
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        if self.end is None and (stream_id := self._reader.stream_id) is not None:
            self._call.background(self._side("DELETE", f"/streams/{stream_id}", None))
        self._reader.stream_id = None

    async def _run(self) -> None:
        try:
            failure = await self._ask_once()
            if failure is not None and self._reader.stream_id is not None:
                failure = await self._go_on(failure)
            if failure is not None:
                self.end = failure
        finally:
            self._call.wake.set()

    async def _linger(self) -> None:
        """Read what follows the answer: the end of the response, after which the connection can be used again."""
        try:
            await asyncio.wait({self._task}, timeout=_LINGER_S)
        finally:
            self._task.cancel()

    async def _ask_once(self) -> Failure | None:
        failure = await self._post()
        if failure is not None and self.ask.instead is not None and takes_no_suffix(failure):
            self._call.no_suffix.add(self.place)
            self.ask = self.ask.instead
            failure = await self._post()
        return failure

    async def _post(self) -> Failure | None:
        left_ns = self._due_ns - self._call.clock.now_ns()
        headers = headers_of(self.endpoint, left_ns)
        return await self._converse("POST", self.ask.path, headers, body_of(self.ask, self.endpoint))

    async def _go_on(self, failure: Failure) -> Failure | None:
        """Ask for the rest of a stream that was cut, as long as it is worth it; return why it could not be had."""
        num_failures, call = 1, self._call
        while True:
            now_ns = call.clock.now_ns()
            at_ns = resume_at(now_ns, call.end_ns, num_failures, call.budget.left, failure, call.jitter)
            if at_ns is None:
                told = failure.code if failure.status in (404, 410) else ""
                return replace(failure, kind=Kind.CUT, code=told, retry_after_ns=None)
            if at_ns > now_ns:
                await asyncio.sleep((at_ns - now_ns) / NS_PER_S)
            call.budget.take()
            self._resumed_at = self._reader.cursor
            again = await self._resume()
            num_failures = 1 if self._resumed_at is None else num_failures + 1
            if again is None:
                return None
            failure = again

    async def _resume(self) -> Failure | None:
        reader = self._reader
        reader.reconnected()
        headers = headers_of(self.endpoint, self._call.end_ns - self._call.clock.now_ns())
        for name in ("content-type", RESUMABLE):
            headers.pop(name, None)
        path = f"/streams/{reader.stream_id}?after={reader.cursor.epoch}.{reader.cursor.seq}"
        failure = await self._converse("GET", path, {**headers, "last-event-id": reader.last_event_id}, None)
        if failure is not None and failure.status in (404, 410):
            return replace(failure, may_retry=False)
        return failure

    async def _converse(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> Failure | None:
        """Send a request and read what comes; None = the answer ended, as the reader says."""
        self._heard_ns = self._call.clock.now_ns()
        url = self.endpoint.base_url + path
        reading = asyncio.create_task(self._read(method, url, headers, body))
        try:
            while not reading.done():
                silent_ns = self._call.clock.now_ns() - self._heard_ns
                if silent_ns >= self._call.idle_ns and self._room.is_set() and self.end is None:
                    return Failure(kind=Kind.CUT, message=f"{self.endpoint.label} went silent.")
                wait_ns = self._call.idle_ns - (silent_ns if self._room.is_set() and self.end is None else 0)
                await asyncio.wait({reading}, timeout=wait_ns / NS_PER_S)
            failure = reading.result()
            return failure if self.end is None else None  # what follows a whole answer changes nothing
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})

    async def _read(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Failure | None:
        begun = False
        try:
            async with self._call.http.open(method, url, headers, body) as reply:
                begun = True
                self._heard_ns = self._call.clock.now_ns()
                if reply.status == 204:  # of a resume: everything was sent, so its end was too
                    why = f"{self.endpoint.label} has nothing left to send, but no [DONE] came."
                    return Failure(kind=Kind.CUT, message=why, may_retry=False)
                if reply.status != 200:
                    error = await _body(reply, _MAX_ERROR_BYTES)
                    return read_error(
                        error, reply.status, retry_after_ns(reply.headers), should_retry(reply.headers)
                    )
                if method == "POST" and "json" in reply.headers.get("content-type", ""):
                    self._hand_on(self._reader.whole(await _body(reply, _MAX_ANSWER_BYTES)))
                    return None
                async for data in reply.chunks():
                    self._heard_ns = self._call.clock.now_ns()
                    deltas = self._reader.feed(data, self._heard_ns)
                    self._unacked_bytes += len(data)
                    self._count_resume()
                    self._hand_on(deltas)
                    if isinstance(self.end, Failure):
                        return None
                    if self._reader.gap:
                        return Failure(kind=Kind.CUT, message=f"{self.endpoint.label} left events out.")
                    self._acknowledge()
                    await self._room.wait()
                if self.end is not None:
                    return None
        except HttpFailure as error:
            why = f"{self.endpoint.label} cannot be reached: {error}."
            if begun:
                why = f"{self.endpoint.label} broke off: {error}."
            return Failure(kind=Kind.CUT if begun else Kind.UNREACHABLE, message=why)
        return Failure(kind=Kind.CUT, message=f"{self.endpoint.label} stopped in the middle: no [DONE] came.")

    def _hand_on(self, deltas: list[Delta]) -> None:
        """Give out what was read, and the end if it has come."""
        end = self._reader.end
        if not deltas and (end is None or self.end is not None):
            return
        if self.first_ns is None and (deltas or isinstance(end, Ended)):
            self.first_ns = self._heard_ns
        self.deltas.extend(deltas)
        self.end = end
        if len(self.deltas) >= _MAX_WAITING:
            self._room.clear()
        self._call.wake.set()

    def _count_resume(self) -> None:
        """Count a resume once it has brought an event, and take back what it cost."""
        if self._resumed_at is not None and self._reader.cursor != self._resumed_at:
            self._resumed_at = None
            self.num_resumes += 1
            self._call.budget.give_back()

    def _acknowledge(self) -> None:
        """Let the server drop what was read, now and then; one request at a time."""
        cursor = self._reader.cursor
        num_events = cursor.seq - self._acked
        is_due = num_events >= _ACK_EVERY or (num_events and self._unacked_bytes >= _ACK_EVERY_BYTES)
        if self._ack_runs or not is_due:
            return
        from headway.wire.stream_messages import Position, encode  # 5 ms that few answers are long enough for

        self._acked, self._unacked_bytes, self._ack_runs = cursor.seq, 0, True
        body = encode(Position(seq=cursor.seq, epoch=cursor.epoch))
        self._call.background(self._side("POST", f"/streams/{self._reader.stream_id}/ack", body))

    async def _side(self, method: str, path: str, body: bytes | None) -> None:
        """Tell the server something about the stream; it may fail, then the server finds out by itself."""
        telling = asyncio.ensure_future(self._tell(method, path, body))
        try:
            await asyncio.wait({telling}, timeout=_SIDE_S)
        finally:
            self._ack_runs = False
            if not telling.done():
                telling.cancel()
                await asyncio.wait({telling})

    async def _tell(self, method: str, path: str, body: bytes | None) -> None:
        headers = {**key_header(self.endpoint), **self.endpoint.headers}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            async with self._call.http.open(method, self.endpoint.base_url + path, headers, body) as reply:
                await _body(reply, _MAX_ERROR_BYTES)
        except HttpFailure:
            pass


async def _body(reply: Reply, max_bytes: int) -> bytes:
    """Return a body, or its beginning."""
    data = bytearray()
    async for chunk in reply.chunks():
        data += chunk
        if len(data) >= max_bytes:
            break
    return bytes(data[:max_bytes])
