"""Plain HTTP/1.1 against every way in which a server may write a response."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from headway.client.http import HttpFailure
from headway.client.plain_http import PlainHttp, is_enough
from headway.client.policy import Endpoint

OK = b"HTTP/1.1 200 OK\r\n"


async def fetch(url: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    async with PlainHttp().open("POST", url, headers or {}, b"body") as reply:
        body = b"".join([chunk async for chunk in reply.chunks()])
        return reply.status, dict(reply.headers), body


def served(*writes: bytes, ask: Any = fetch) -> tuple[Any, bytes]:
    """Return what `ask(url)` gave of a server that writes this and closes, and what the server got."""
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            got.extend(head + await reader.readexactly(4))
            for data in writes:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def main() -> object:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            work: Coroutine[Any, Any, object] = ask(
                f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x?y=1"
            )
            return await work

    return asyncio.run(main()), bytes(got)


@pytest.mark.parametrize(
    "writes",
    [
        [OK + b"Content-Length: 5\r\n\r\nhello"],
        [OK + b"Content-Length: 5\r\n\r\n", b"he", b"llo"],
        [OK, b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"],
        [OK + b"\r\nhello"],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK + b"Content-Length: 5\r\n\r\nhello"],
    ],
)
def test_bodies_however_they_are_framed(writes: list[bytes]) -> None:
    (status, headers, body), _ = served(*writes)
    assert (status, body) == (200, b"hello")
    assert "link" not in headers


def test_what_is_sent() -> None:
    (status, headers, _), got = served(
        b"HTTP/1.1 429 X\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
        ask=lambda url: fetch(url, {"a": "b"}),
    )
    assert (status, headers["retry-after"]) == (429, "3")
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /v1/x?y=1 HTTP/1.1"
    assert [line for line in lines if not line.startswith("host: 127.0.0.1:")] == [
        "connection: close",
        "content-length: 4",
        "a: b",
    ]
    assert body == b"body"


@pytest.mark.parametrize(
    "writes",
    [
        [],
        [OK],
        [OK + b"Content-Length: 5\r\n\r\nhell"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"],
        [b"220 mail.example ESMTP\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        [b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"],
    ],
)
def test_what_is_no_whole_response(writes: list[bytes]) -> None:
    with pytest.raises(HttpFailure):
        served(*writes)


def test_a_header_cannot_forge_another() -> None:
    with pytest.raises(HttpFailure, match="line end"):
        served(ask=lambda url: fetch(url, {"authorization": "Bearer a\r\nx: y"}))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(HttpFailure):
        asyncio.run(fetch(url))


def test_when_it_is_enough() -> None:
    plain, tls = Endpoint(url="http://h"), Endpoint(url="https://h")
    assert is_enough([plain], {})
    assert not is_enough([plain, tls], {})
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        assert not is_enough([plain], {name: "http://proxy"})


def test_a_name_that_nobody_answers_for_does_not_hold_up_the_programs_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        answered.wait(20)  # a test that fails ends, too
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", never)

    async def main() -> None:
        fetching = asyncio.ensure_future(fetch("http://name.example/v1/x"))
        await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.wait({fetching})

    asyncio.run(main())
    assert not answered.is_set()
    names = [thread.name for thread in threading.enumerate() if not thread.daemon]
    assert names == ["MainThread"]
    answered.set()
