"""uvicorn's HTTP/1.1 protocol, bounded before a request reaches the application.

uvicorn waits for headers without end, keeps as many of them as come, and takes any number of connections. Here a
connection that says nothing, or says it too slowly (RFC 9110, 15.5.9), headers that are too large (RFC 6585, 5) and
connections beyond the limit are answered in the shape of the API that they ask for, and closed. What is not HTTP at all
gets a 400. Bodies are the application's affair (`headway.gateway.client_watch`). A wish to upgrade is ignored, as RFC 9110,
7.8, allows, but where a stream has its socket: uvicorn's parser would drop the body that comes with it, and Java's HTTP
client wishes for HTTP/2 with every request.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from headway.cli.held_head import HeldHead
from headway.core.errors import (
    HeadersTooLarge,
    HeadwayError,
    InvalidRequest,
    RequestTimeout,
    TooManyConnections,
)
from headway.wire.error_shapes import shape_at
from headway.wire.errors import retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a connection may take.

    header_timeout_s   from the connection, or a request's first byte, to the end of the headers
    max_header_bytes   request line and headers together
    max_connections    open at once
    """

    header_timeout_s: float = 20.0  # clients that warm up a connection send within a second
    max_header_bytes: int = 64 * 1024  # proxies allow 8 to 32 KiB
    max_connections: int = 4096


_MOST_PER_BYTE = 6
"""Bytes on the wire for a byte of body: in a chunk of its own, `1`, two line ends and itself."""
_SOCKET = re.compile(rb"(?:\r?\n)*GET /v1/streams/[^/? ]+/ws[? ]")
_MAX_SOCKET_LINE = 512
_SOCKET_URL = re.compile(rb"/v1/streams/[^/? ]+/ws(?:\?|$)")
_UPGRADE = re.compile(rb"^upgrade(?=[ \t]*:)", re.IGNORECASE | re.MULTILINE)


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: HttpLimits = HttpLimits(),
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""  # uvicorn's; it is read before there is one
        self._limits = limits
        self._expects_headers = True  # the parser stands before or within a request's headers
        self._num_received = 0  # bytes since it does
        self._line = b""  # how the request begins, as far as it has come
        self._num_parsed = 0  # bytes of whole headers among them
        self._num_beside = 0  # bytes that came after the headers beyond what the body's own explain
        self._refusal: HeadwayError | None = None
        self._timer: asyncio.TimerHandle | None = None

    # What the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(
                TooManyConnections(
                    f"The server takes {self._limits.max_connections} connections at once; try again later."
                )
            )
            return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, within the limits."""
        if self.transport.is_closing():
            return  # it was refused; the parser stands in the middle of something
        if self._expects_headers:
            if not self._num_received:
                self._line = b""
            self._num_received += len(data)
            data = self._without_upgrade(data)
        else:
            self._num_beside += len(data)
        super().data_received(data)
        # Also after the body: the parser keeps a trailer until it ends.
        num_bytes = self._num_received if self._expects_headers else self._num_beside
        if num_bytes > self._limits.max_header_bytes:
            self._refuse(self._too_large())
        elif self._is_idle:
            self._start_timer()  # for the rest of the headers, or of a body that nobody reads

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._num_parsed = 0

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        super().on_url(url)  # first: a refusal is told in the words of what is asked for
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value) + 4)  # ": " and the line's end
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._stop_timer()
        self._expects_headers = False
        self._num_beside = 0
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not None and self.cycle is not before:  # else it becomes a socket
            self.cycle.transport = HeldHead(self.transport, self.loop)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Hand a part of the body on."""
        self._num_beside = max(0, self._num_beside - len(body) * _MOST_PER_BYTE)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect the next request."""
        super().on_message_complete()
        self._expects_headers = True
        self._num_received = 0
        self._num_beside = 0

    def on_response_complete(self) -> None:
        """Go on with what came meanwhile."""
        super().on_response_complete()
        if self._is_idle and self._num_received and not self.transport.is_closing():
            self._start_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's words; ours say more
        """Answer what is no HTTP, or what `_count` refused."""
        self._refuse(
            self._refusal or InvalidRequest("The server could not read this as HTTP/1.1; check the client.")
        )

    def _should_upgrade(self) -> bool:
        """Whether this is a stream's socket: no other path has one."""
        return _SOCKET_URL.match(self.url) is not None and super()._should_upgrade()

    def _without_upgrade(self, data: bytes) -> bytes:
        """Rename the header in a request's headers, or a part of them, unless it asks for a stream's socket."""
        self._line = (self._line + data)[:_MAX_SOCKET_LINE]
        if _SOCKET.match(self._line):
            return data
        head, end, rest = data.partition(b"\r\n\r\n")
        if b"upgrade" not in head.lower():  # nearly always
            return data
        return _UPGRADE.sub(b"x-upgrade", head) + end + rest

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _count(self, num_bytes: int) -> None:
        self._num_parsed += num_bytes
        if self._num_parsed > self._limits.max_header_bytes:
            self._refusal = self._too_large()
            raise self._refusal  # the parser stops, and uvicorn calls `send_400_response`

    def _too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"The request line and headers exceed {self._limits.max_header_bytes} bytes; send fewer."
        )

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._limits.header_timeout_s, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._expects_headers and self._num_received:
            limit_s = self._limits.header_timeout_s
            self._refuse(
                RequestTimeout(f"The request's headers took longer than {limit_s:g} s; send it again.")
            )
        else:  # a connection that was opened ahead and not used expects no answer
            self.transport.close()

    def _refuse(self, error: HeadwayError) -> None:
        """Answer without the application, and close. Nothing is written into an answer that has begun."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_idle or not (self.cycle.response_started or self.pipeline):
            path = self.url.partition(b"?")[0].decode("latin-1")
            body = msgspec.json.encode(shape_at(path).body(error))
            wait = retry_after(error)
            headers = b"" if wait is None else b"retry-after: " + wait.encode() + b"\r\n"
            self.transport.write(
                STATUS_LINE[error.status]
                + b"content-type: application/json\r\nconnection: close\r\ncontent-length: "
                + str(len(body)).encode()
                + b"\r\n"
                + headers
                + b"\r\n"
                + body
            )
        self.transport.close()
