"""Connections that say too little, too slowly or too much, on real sockets."""

import json
import socket

import pytest
from starlette.types import Receive, Scope, Send

from headway.cli.http_protocol import HttpLimits
from support.live_server import live_server

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
PATIENT = HttpLimits(max_header_bytes=1000)
HASTY = HttpLimits(header_timeout_s=0.1)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the method; does not read the body."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = scope["method"].encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def connect(address: tuple[str, int]) -> socket.socket:
    client = socket.create_connection(address)
    client.settimeout(30)
    return client


def read_all(client: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_answer(client: socket.socket, body: bytes) -> None:
    """Read one answer, which ends with `body`."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n" + body):
        part = client.recv(65536)
        assert part, answer
        answer += part


def refusal(answer: bytes) -> tuple[int, str]:
    """Return status and code of the one response in `answer`."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert f"content-length: {len(body)}".encode() in head
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nx: " + b"y" * 2000 + b"\r\n\r\n",  # whole
        b"GET / HTTP/1.1\r\nx: " + b"y" * 2000,  # without end
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"y" * 2000 + b" HTTP/1.1\r\n\r\n",
        b"\r\n" * 600,
    ],
    ids=["long", "endless", "many", "url", "blank lines"],
)
def test_headers_beyond_the_limit_get_431(head: bytes) -> None:
    with live_server(app, PATIENT) as address, connect(address) as client:
        client.sendall(head)
        assert refusal(read_all(client)) == (431, "headers_too_large")


def test_headers_within_the_limit_may_come_in_pieces_and_again_and_again() -> None:
    head = b"GET / HTTP/1.1\r\nx: " + b"y" * 700 + b"\r\n\r\n"
    with live_server(app, PATIENT) as address, connect(address) as client:
        for _ in range(5):
            client.sendall(head[:600])
            client.sendall(head[600:])
            read_answer(client, b"GET")


def test_a_large_body_is_not_counted_as_headers() -> None:
    body = b"z" * 100_000
    with live_server(app, PATIENT) as address, connect(address) as client:
        client.sendall(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body + REQUEST)
        answer = b""
        while answer.count(b"HTTP/1.1 200") < 2:
            answer += client.recv(65536)
        assert b"431" not in answer


def test_headers_that_come_too_slowly_get_408() -> None:
    with live_server(app, HASTY) as address, connect(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\nx: ")
        assert refusal(read_all(client)) == (408, "request_timeout")


def test_an_unused_connection_is_closed_without_a_word() -> None:
    with live_server(app, HASTY) as address, connect(address) as client:
        assert read_all(client) == b""


def test_a_drip_after_an_answer_does_not_keep_the_connection() -> None:
    with live_server(app, HASTY) as address, connect(address) as client:
        client.sendall(REQUEST)
        read_answer(client, b"GET")
        client.sendall(b"\r\n")
        assert refusal(read_all(client)) == (408, "request_timeout")


def test_a_body_that_nobody_reads_does_not_keep_the_connection() -> None:
    with live_server(app, HASTY) as address, connect(address) as client:
        client.sendall(b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\nz")
        read_answer(client, b"POST")
        client.sendall(b"z")
        assert read_all(client) == b""


def test_connections_beyond_the_limit_are_told_so() -> None:
    with (
        live_server(app, HttpLimits(max_connections=2)) as address,
        connect(address) as first,
        connect(address) as second,
    ):
        for client in (first, second):
            client.sendall(REQUEST)
            read_answer(client, b"GET")
        with connect(address) as third:
            answer = read_all(third)
            assert refusal(answer) == (503, "too_many_connections")
            assert b"retry-after: 1" in answer
        first.sendall(REQUEST)
        read_answer(first, b"GET")


@pytest.mark.parametrize(
    "noise", [b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
def test_what_is_no_http_gets_400(noise: bytes) -> None:
    with live_server(app) as address, connect(address) as client:
        client.sendall(noise)
        assert refusal(read_all(client)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "is_anthropics"),
    [(b"/v1/messages", True), (b"/v1/messages/count_tokens?beta=1", True), (b"/v1/messagesx", False)],
)
def test_what_is_no_http_is_told_in_the_shape_of_its_api(path: bytes, is_anthropics: bool) -> None:
    with live_server(app) as address, connect(address) as client:
        client.sendall(b"POST " + path + b" HTTP/1.1\r\na\x01: b\r\n\r\n")
        body = json.loads(read_all(client).partition(b"\r\n\r\n")[2])
    assert (body.get("type") == "error") is is_anthropics
    assert body["error"]["type"] == "invalid_request_error"


def test_an_address_that_is_too_long_is_told_in_the_shape_of_its_api() -> None:
    with live_server(app) as address, connect(address) as client:
        client.sendall(b"POST /v1/messages?" + b"x" * 70_000)
        body = json.loads(read_all(client).partition(b"\r\n\r\n")[2])
    assert (body["type"], body["error"]["type"]) == ("error", "request_too_large")


async def reading_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body."""
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
        return
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE"])
def test_a_wish_to_upgrade_is_ignored_and_the_body_is_read(name: bytes) -> None:
    """Java's HTTP client sends this for every request to an address without TLS."""
    head = (
        b"POST / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 9\r\nHost: x\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n" + name + b": h2c\r\n\r\n"
    )
    with live_server(reading_app) as address, connect(address) as client:
        for _ in range(2):
            client.sendall(head + b"upgrade: ")
            read_answer(client, b"upgrade: ")


@pytest.mark.parametrize(
    "rest",
    [b"zz\r\n", b"fffffffffffffffff\r\n", b"3\r\nabcdef"],
    ids=["no size", "huge size", "longer than its size"],
)
def test_a_body_that_is_no_http_is_answered_before_the_connection_ends(rest: bytes) -> None:
    with live_server(reading_app) as address, connect(address) as client:
        client.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + rest)
        assert refusal(read_all(client)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "rest", [b"0\r\nx: " + b"y" * 2000, b"1;" + b"y" * 2000], ids=["trailer", "extension"]
)
def test_what_surrounds_a_body_is_bounded_as_headers_are(rest: bytes) -> None:
    """The parser keeps a trailer until it ends: unbounded, as much as comes until the body's time is over."""
    head = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    with live_server(reading_app, PATIENT) as address, connect(address) as client:
        client.sendall(head)
        assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
        client.sendall(rest)
        assert refusal(read_all(client)) == (431, "headers_too_large")


def test_nothing_is_written_between_answers_that_wait_for_each_other() -> None:
    post = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody"
    with live_server(reading_app) as address, connect(address) as client:
        client.sendall(post + post + b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
        answer = read_all(client)
    assert answer.count(b"HTTP/1.1 ") <= 3
    assert b"HTTP/1.1 400" not in answer.partition(b"HTTP/1.1 400")[2]


def test_many_small_chunks_are_a_body_like_any_other() -> None:
    chunks = b"1\r\nz\r\n" * 200_000
    with live_server(reading_app, PATIENT) as address, connect(address) as client:
        client.sendall(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        read_answer(client, b"z" * 200_000)
