"""One HTTP/1.1 connection of a measuring client: sends a request, stamps what comes back, keeps everything for later.

Nothing is decoded while it is measured: bytes are stamped as soon as the loop hands them over, before the parser sees them,
and events are looked for when the response has ended. One request at a time; the connection may be
used again after a complete response that allows it.
"""

import asyncio
import bisect
import ssl
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import httptools

from headway.core.clock import NS_PER_S

MAX_BODY_BYTES = 64 << 20
"""An answer is kept whole; one that never ends must not take the memory of the machine that measures it."""

_FIRST_FINAL = 200

End = Literal["complete", "closed", "garbage", "too large", "silent"]


@dataclass(slots=True)
class Response:
    """What one request got. Stamps are monotonic nanoseconds."""

    written_ns: int
    """When the first bytes of the request had been given to the kernel."""
    first_byte_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name; of several with one name the last."""
    body: bytearray = field(default_factory=bytearray)
    """Without the framing of chunked transfer."""
    end: End | None = None
    """How it ended; None while it has not."""
    reads_ns: "array[int]" = field(default_factory=lambda: array("q"))
    """When bytes of the body came,"""
    reads_end: "array[int]" = field(default_factory=lambda: array("q"))
    """and how long the body was then."""

    def stamp_of(self, offset: int) -> int:
        """Return when the byte at `offset` of the body came; an event came with its last byte. Raises IndexError beyond."""
        if not 0 <= offset < len(self.body):
            raise IndexError(f"byte {offset} of a body of {len(self.body)}")
        return self.reads_ns[bisect.bisect_right(self.reads_end, offset)]


class _Transport(Protocol):
    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...


class Connection(asyncio.Protocol):
    """Use `connect`. `connecting_ns` and `connected_ns` tell what connecting took, TLS included, apart from any request."""

    def __init__(self, connecting_ns: int, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.connecting_ns = connecting_ns
        self.connected_ns: int | None = None
        self.num_requests = 0
        self._clock_ns = clock_ns
        self._transport: _Transport | None = None
        self._response: Response | None = None
        self._done: asyncio.Future[Response] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._read_ns = 0
        self._reusable = False

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and self._response is None

    async def request(self, data: bytes, *, silence_s: float) -> Response:
        """Send a whole request; return its response once it has ended, however it did: nothing a server does raises.

        `silence_s` bounds the time without a byte. A response that is not complete, and one whose server says so, closes the
        connection; so does cancelling. On one that the server has closed by now it ends as closed. Raises RuntimeError if it
        is busy.
        """
        if self._response is not None:
            raise RuntimeError("the connection is busy")
        if self._transport is None:
            return Response(written_ns=self._clock_ns(), end="closed")
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        self._response = response = Response(written_ns=self._clock_ns())
        self.num_requests += 1
        try:
            while not self._done.done():
                silent_ns = self._clock_ns() - max(response.written_ns, self._read_ns)
                if silent_ns >= silence_s * NS_PER_S:
                    self._finish("silent")
                else:
                    await asyncio.wait({self._done}, timeout=silence_s - silent_ns / NS_PER_S)
        except asyncio.CancelledError:
            self._finish("closed")
            raise
        finally:
            self._done = None
        return response

    def close(self) -> None:
        """Close at once; a request that runs ends as closed."""
        if self._response is not None:
            self._finish("closed")
        elif self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol; after the handshake where there is one."""
        self.connected_ns = self._clock_ns()
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._read_ns = self._clock_ns()
        response = self._response
        if response is None or self._parser is None:  # bytes that nobody asked for
            self.close()
            return
        if response.first_byte_ns is None:
            response.first_byte_ns = self._read_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._finish("garbage")
            self.close()  # or the garbage came after a complete response

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol: an answer without a length ends here."""
        self._transport = None
        response = self._response
        if response is None:
            self._parser = None  # a cycle of references
            return
        whole = exc is None and response.status is not None and self._ends_with_connection(response)
        self._finish("complete" if whole else "closed")

    # ---- httptools' callbacks ----

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        assert self._response is not None
        self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        assert self._response is not None
        assert self._parser is not None
        self._response.status = self._parser.get_status_code()
        self._reusable = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        response = self._response
        if response is None:
            return
        response.body += data
        length = len(response.body)
        if response.reads_ns and response.reads_ns[-1] == self._read_ns:
            response.reads_end[-1] = length  # several chunks of one read
        else:
            response.reads_ns.append(self._read_ns)
            response.reads_end.append(length)
        if length > MAX_BODY_BYTES:
            self._finish("too large")

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._response is not None and (self._response.status or 0) < _FIRST_FINAL:
            self._response.headers.clear()  # of a response that only announces another (RFC 9110, 15.2)
            return
        self._finish("complete")

    @staticmethod
    def _ends_with_connection(response: Response) -> bool:
        return "content-length" not in response.headers and "transfer-encoding" not in response.headers

    def _finish(self, end: End) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        response.end = end
        self._parser = None
        if self._done is not None and not self._done.done():
            self._done.set_result(response)
        if self._transport is not None and not (end == "complete" and self._reusable):
            self._transport.abort()
            self._transport = None


async def connect(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0
) -> Connection:
    """Return an open connection; raises OSError (refused, unknown host, TLS) and TimeoutError."""
    started_ns = time.monotonic_ns()
    loop = asyncio.get_running_loop()
    # No asyncio.wait_for: before Python 3.12 it forgets to be cancelled when what it waits for ends at the same time.
    opening = asyncio.ensure_future(
        loop.create_connection(lambda: Connection(started_ns), host, port, ssl=tls)
    )
    try:
        await asyncio.wait({opening}, timeout=timeout_s)
        if not opening.done():
            raise TimeoutError(f"no connection within {timeout_s:g} s")
    except (asyncio.CancelledError, TimeoutError):
        opening.add_done_callback(_abandon)
        opening.cancel()
        raise
    try:
        return opening.result()[1]
    finally:
        del opening  # whose exception would hold it, and all that waits for it, in a cycle


def _abandon(opening: "asyncio.Future[tuple[asyncio.Transport, Connection]]") -> None:
    """Close a connection that was opened as nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()
