"""The measuring client against a scripted server: what it keeps, when it came, and how an exchange ended."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from headway.lab import connection as client
from headway.lab.connection import Connection, connect

pytestmark = pytest.mark.anyio

REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG_S = 60.0

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Connection]:
    """Give a connection to a server that reads a request and then does what `script` says, once for each request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n{}"):
                await script(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await connect("127.0.0.1", server.sockets[0].getsockname()[1])
        yield connection
        connection.close()


def sends(*parts: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
        for part in parts:
            writer.write(part)

    return script


async def test_an_answer_is_kept_without_its_framing() -> None:
    async with serving(sends(HEAD, chunk(b"data: a\n\n"), chunk(b"data: b\n\n"), b"0\r\n\r\n")) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, response.status) == ("complete", 200)
        assert response.body == b"data: a\n\ndata: b\n\n"
        assert response.headers["content-type"] == "text/event-stream"
        assert connection.connected_ns is not None
        assert response.first_byte_ns is not None
        assert (
            connection.connecting_ns
            <= connection.connected_ns
            <= response.written_ns
            <= response.first_byte_ns
        )


async def test_a_connection_is_used_again() -> None:
    async with serving(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as connection:
        for number in range(1, 4):
            response = await connection.request(REQUEST, silence_s=LONG_S)
            assert (response.end, bytes(response.body)) == ("complete", b"ok")
            assert connection.is_open
            assert connection.num_requests == number


async def test_a_server_that_closes_after_its_answer_is_believed() -> None:
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
    async with serving(sends(answer)) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, response.status, response.headers["retry-after"]) == ("complete", 429, "3")
        assert not connection.is_open
        again = await connection.request(REQUEST, silence_s=LONG_S)
        assert (again.end, again.status, again.first_byte_ns) == ("closed", None, None)


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(b"data: a\n\n"))
    await writer.drain()
    writer.close()
    reader.feed_eof()


async def test_an_answer_that_breaks_off_is_told() -> None:
    async with serving(closes) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, bytes(response.body)) == ("closed", b"data: a\n\n")


async def ends_by_closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: a\n\n")
    await writer.drain()
    writer.close()
    reader.feed_eof()


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with serving(ends_by_closing) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, bytes(response.body)) == ("complete", b"data: a\n\n")
        assert not connection.is_open


@pytest.mark.parametrize(
    "garbage", [b"SSH-2.0-OpenSSH\r\n", HEAD + b"zz\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_garbage_is_told(garbage: bytes) -> None:
    async with serving(sends(garbage)) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert response.end == "garbage"
        assert not connection.is_open


async def test_garbage_after_an_answer_closes_the_connection() -> None:
    async with serving(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!!!!\r\n\r\n")) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, bytes(response.body)) == ("complete", b"ok")
        assert not connection.is_open


async def test_silence_is_told() -> None:
    async with serving(sends(HEAD, chunk(b"data: a\n\n"))) as connection:
        response = await connection.request(REQUEST, silence_s=0.05)
        assert (response.end, bytes(response.body)) == ("silent", b"data: a\n\n")
        assert not connection.is_open


async def test_an_announcement_is_not_the_answer() -> None:
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with serving(sends(answer)) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert (response.end, response.status, bytes(response.body)) == ("complete", 200, b"ok")
        assert "link" not in response.headers


async def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BODY_BYTES", 100_000)
    async with serving(sends(HEAD, *[chunk(b"x" * 50_000)] * 4)) as connection:
        response = await connection.request(REQUEST, silence_s=LONG_S)
        assert response.end == "too large"
        assert not connection.is_open


async def test_a_cancelled_request_closes_its_connection() -> None:
    asked = asyncio.Event()

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001
        asked.set()
        await reader.read()

    async with serving(waits) as connection:
        task = asyncio.create_task(connection.request(REQUEST, silence_s=LONG_S))
        await asked.wait()
        assert not connection.is_open
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert not connection.is_open


async def test_nobody_there_is_an_error_of_connecting() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await connect("127.0.0.1", port)


class Pipe:
    """A transport that takes everything."""

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...


@pytest.mark.parametrize("size", [1, 3, 1_000])
async def test_a_byte_came_with_the_read_that_brought_it(size: int) -> None:
    """Reads of `size` bytes a microsecond apart, framing included."""
    clock = itertools.count(0, 1_000)
    connection = Connection(0, lambda: next(clock))
    connection.connection_made(Pipe())  # type: ignore[arg-type]
    task = asyncio.create_task(connection.request(REQUEST, silence_s=LONG_S))
    await asyncio.sleep(0)
    stream = HEAD + chunk(b"data: a\n\n") + chunk(b"data: b\n\n") + b"0\r\n\r\n"
    came_ns: dict[int, int] = {}
    for start in range(0, len(stream), size):
        now_ns = next(clock) + 1_000
        connection.data_received(stream[start : start + size])
        for at in range(start, min(start + size, len(stream))):
            came_ns[at] = now_ns
    response = await task
    assert response.body == b"data: a\n\ndata: b\n\n"
    first, second = stream.index(b"data: a"), stream.index(b"data: b")
    assert response.first_byte_ns == came_ns[0]
    for offset in range(9):
        assert response.stamp_of(offset) == came_ns[first + offset]
        assert response.stamp_of(9 + offset) == came_ns[second + offset]
    with pytest.raises(IndexError):
        response.stamp_of(18)


async def test_a_cancelled_connect_is_cancelled_whenever_that_happens() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for num_rounds in range(25):
            task = asyncio.create_task(connect("127.0.0.1", port))
            for _ in range(num_rounds):
                await asyncio.sleep(0)
            if task.done():
                task.result().close()
                continue
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(0)  # what was opened meanwhile is closed
