"""A stream's socket: which paths have one, and what its application is told of the way to the peer."""

import socket
import threading

import pytest
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame
from websockets.sync.client import connect

from headway.cli.socket_protocol import SocketProtocol
from support.live_server import live_server

SOCKET_PATH = "/v1/streams/abc/ws"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """On a socket, answer each message with the bytes that have not arrived; else with what came."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            for _ in range(int(message["text"])):
                await send({"type": "websocket.send", "bytes": b"x" * 1000})
            await send({"type": "websocket.send", "text": str(scope["extensions"]["headway.unsent_bytes"]())})
        return
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message["body"]
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_streams_socket_opens_however_its_request_is_cut(pieces: int) -> None:
    with live_server(app) as address, socket.create_connection(address) as client:
        request = (
            f"GET {SOCKET_PATH} HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
        ).encode()
        size = -(-len(request) // pieces)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(request), size):
            client.sendall(request[start : start + size])
        assert client.recv(1000).startswith(b"HTTP/1.1 101 ")


def test_no_other_path_has_a_socket() -> None:
    with live_server(app) as (host, port):
        for path in ("/", "/v1/streams", "/v1/streams/a/b/ws", "/v1/streams/abc/wsx", "/v1/chat/completions"):
            with pytest.raises(InvalidStatus) as refused, connect(f"ws://{host}:{port}{path}"):
                pass
            assert refused.value.response.status_code == 200  # served as if nobody had wished


def test_what_has_arrived_is_told_from_what_is_on_its_way() -> None:
    with live_server(app) as (host, port), socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((host, port))
        with connect(f"ws://{host}:{port}{SOCKET_PATH}", sock=raw, max_size=None, max_queue=1) as client:
            client.send("0")
            assert client.recv() == "0"
            client.send("50")
            frames = [client.recv() for _ in range(51)]
            assert isinstance(frames[-1], str)
            assert int(frames[-1]) > 0


def handshake(client: socket.socket) -> None:
    client.sendall(
        f"GET {SOCKET_PATH} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nUpgrade: websocket\r\n"
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n".encode()
    )
    assert client.recv(1000).startswith(b"HTTP/1.1 101 ")


def slow_reader(address: tuple[str, int]) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    handshake(client)
    return client


def test_nothing_is_read_of_who_takes_no_answers() -> None:
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
    most = 64 << 20  # the kernel's buffers take some megabytes
    with live_server(app) as address, slow_reader(address) as client:
        client.settimeout(1)
        num_sent = 0
        try:
            while num_sent < most:
                num_sent += client.send(ping * 1000)
        except TimeoutError:
            pass
        assert num_sent < most


def test_who_answers_no_pings_is_dropped_with_what_he_does_not_take() -> None:
    ended = threading.Event()

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "websocket":
                ended.set()

    with (
        live_server(noting, ws_ping_interval=0.01, ws_ping_timeout=0.01) as address,
        slow_reader(address) as client,
    ):
        text = b"20000"  # as many kilobytes, of which none is read
        client.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)
        assert ended.wait(20)


def test_a_message_in_any_number_of_fragments_takes_no_more_than_its_bytes() -> None:
    kept: list[int] = []

    class Watched(SocketProtocol):
        def handle_cont(self, event: Frame) -> None:
            super().handle_cont(event)
            kept.append(len(self.frames))

    empty = b"\x00\x80\0\0\0\0"
    with live_server(app, ws=Watched) as address, socket.create_connection(address) as client:
        handshake(client)
        client.sendall(
            b"\x01\x80\0\0\0\0" + empty * 1000 + b"\x00\x81\0\0\0\0" + b"0" + empty + b"\x80\x80\0\0\0\0"
        )
        assert client.recv(100) == b"\x81\x010"
        assert max(kept) <= 3
