"""HTTP/1.1 over plain TCP, a connection for each request: for a program that makes one and ends.

httpx2 takes 60 ms to import and to be ready here, which an editor would wait for at every key. This one knows no TLS and
no proxies; who needs them, or keeps connections, takes `client/httpx_http.py`.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import httptools

from headway.client.http import HttpFailure
from headway.client.policy import Endpoint

_READ_BYTES: Final = 1 << 16
_FIRST_FINAL_STATUS: Final = 200
_PROXIES: Final = ("http_proxy", "all_proxy")


def is_enough(endpoints: Sequence[Endpoint], environment: Mapping[str, str]) -> bool:
    """Return whether plain TCP reaches all endpoints."""
    proxied = any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES)
    return not proxied and all(endpoint.url.startswith("http://") for endpoint in endpoints)


class _Response:
    """A response as far as it has come: what httptools calls, and `client.http.Reply`."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.headers: dict[str, str] = {}
        self.status = 0
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._body: deque[bytes] = deque()
        self._head_came = False
        self._ended = False

    def on_message_begin(self) -> None:
        self.headers.clear()  # an interim response may have come before (RFC 9110, 15.2)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head_came = self.status >= _FIRST_FINAL_STATUS

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._ended = self._head_came

    async def head(self) -> None:
        """Wait for the response's head; raises HttpFailure."""
        while not self._head_came:
            if not await self._read():
                raise HttpFailure("it closed the connection without an answer")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the body as it comes."""
        while True:
            while self._body:
                yield self._body.popleft()
            if self._ended:
                return
            if not await self._read():
                if "content-length" in self.headers or "transfer-encoding" in self.headers:
                    raise HttpFailure("it closed the connection in the middle of an answer")
                return

    async def _read(self) -> bool:
        """Read once; return False when the connection is at its end."""
        data = await self._reader.read(_READ_BYTES)
        try:
            if data:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise HttpFailure(f"what it sent is no HTTP: {error}") from error
        return bool(data)


class PlainHttp:
    """Implements `Http`."""

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[_Response]:
        """Send a request on a connection of its own and wait for the response's head."""
        address = urlsplit(url)
        try:
            reader, writer = await _connection(address.hostname or "", address.port or 80)
        except (OSError, UnicodeError) as error:
            raise HttpFailure(str(error)) from error
        try:
            target = address.path + (f"?{address.query}" if address.query else "")
            fields = {
                "host": address.netloc.rpartition("@")[2],
                "connection": "close",
                "content-length": str(len(body or b"")),
                **headers,
            }
            lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
            if any(char in line for line in lines for char in "\r\n\0"):
                raise HttpFailure("a header of the request has a line end")
            head = "".join(f"{line}\r\n" for line in lines)
            writer.write(head.encode() + b"\r\n" + (body or b""))
            response = _Response(reader)
            await response.head()
            yield response
        except OSError as error:
            raise HttpFailure(str(error)) from error
        finally:
            writer.transport.abort()

    async def aclose(self) -> None:
        """There is nothing to close."""


async def _connection(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that takes it; raises OSError, UnicodeError."""
    failure = OSError(f"{host} has no address")
    for address in await _addresses(host, port):
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            failure = error
    raise failure


def _addresses(host: str, port: int) -> "asyncio.Future[list[str]]":
    """Look a name up on a thread that nobody waits for: a program's end would wait for those of the event loop."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def tell(addresses: list[str], error: Exception | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def look_up() -> None:
        addresses: list[str] = []
        error: Exception | None = None
        try:
            addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as failure:
            error = failure
        try:
            loop.call_soon_threadsafe(tell, addresses, error)
        except RuntimeError:  # the loop has ended
            return

    threading.Thread(target=look_up, daemon=True).start()
    return found
