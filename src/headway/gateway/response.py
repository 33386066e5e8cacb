"""Sends one response over ASGI: JSON at once, or a stream whose reader must keep up. It knows no content.

The server waits in `send` while the socket's buffers are full (uvicorn: 64 KiB above the kernel's), so a slow reader holds
up its own stream only; one that takes nothing for the time allowed is given up.
"""

from collections.abc import Callable, Iterable

import msgspec
from starlette.types import Message, Send

from headway.core.errors import HeadwayError
from headway.gateway.in_time import in_time
from headway.wire import sse
from headway.wire.credentials import challenge
from headway.wire.error_shapes import OPENAI, ErrorShape
from headway.wire.errors import retry_after

Headers = Iterable[tuple[bytes, bytes]]


class SlowReader(Exception):
    """The client took nothing for too long; nothing more can be sent."""


class Responder:
    """One response.

    started       the status was sent and can no longer change
    complete      the end was sent, too
    error_body    describes an error that is the whole response
    error_event   encodes an error that ends a stream; endpoints that open theirs first set it
    stream_headers  of a stream
    """

    def __init__(self, send: Send, *, timeout_s: float, error_shape: ErrorShape = OPENAI) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.error_body = error_shape.body
        self.error_event: Callable[[HeadwayError], bytes] = error_shape.event
        self.stream_headers: Headers = sse.HEADERS
        self.started = False
        self.complete = False

    async def json(self, status: int, value: object, headers: Headers = ()) -> None:
        """Send a whole JSON response; raises SlowReader."""
        await self.whole(status, b"application/json", msgspec.json.encode(value), headers)

    async def whole(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Send a whole response; raises SlowReader."""
        length = str(len(body)).encode()
        await self._start(status, [(b"content-type", content_type), (b"content-length", length), *headers])
        await self._body(body, more=False)

    async def error(self, error: HeadwayError) -> None:
        """Send an error: as the response, or as the last event of a stream that began."""
        if self.started:
            await self._body(self.error_event(error), more=False)
            return
        headers = [(b"connection", b"close")] if error.status in (408, 413) else []  # the body was not read
        wait = retry_after(error)
        if wait is not None:
            headers.append((b"retry-after", wait.encode()))
        asked_for = challenge(error)
        if asked_for is not None:
            headers.append((b"www-authenticate", asked_for.encode()))
        await self.json(error.status, self.error_body(error), headers)

    async def stream(self, data: bytes) -> None:
        """Send events, after the headers if these are the first; raises SlowReader."""
        if not self.started:
            await self._start(200, self.stream_headers)
        if data:
            await self._body(data, more=True)

    async def stream_end(self, data: bytes) -> None:
        """Send the last events and end the stream; raises SlowReader."""
        if not self.started:
            await self._start(200, self.stream_headers)
        await self._body(data, more=False)

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._send_in_time({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def _body(self, data: bytes, *, more: bool) -> None:
        await self._send_in_time({"type": "http.response.body", "body": data, "more_body": more})
        self.complete = not more

    async def _send_in_time(self, message: Message) -> None:
        try:
            await in_time(self._send(message), self._timeout_s)
        except TimeoutError:
            raise SlowReader from None
