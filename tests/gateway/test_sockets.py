"""What only real sockets show: a client that closes its connection is noticed, and nothing of it stays."""

import os
import queue
import socket

import msgspec
import pytest

from headway.core.clock import MonotonicClock
from headway.core.events import Event, RequestEnded
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from support.gateway_app import MODEL, served
from support.live_server import live_server
from support.scripted_client import FakeEngineClient, delta

BODY = msgspec.json.encode({"prompt": "hi", "stream": True})
WHOLE = msgspec.json.encode({"prompt": "hi"})


def post(address: tuple[str, int], body: bytes) -> socket.socket:
    client = socket.create_connection(address)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("body", [BODY, WHOLE], ids=["stream", "whole"])
def test_clients_that_close_their_connections_leave_no_request_and_no_descriptor(body: bytes) -> None:
    ended: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = FakeEngineClient(script=lambda request: [(delta(request, b"a"),)])
    gateway = Gateway(
        {MODEL: served(engine)},
        config=GatewayConfig(),
        clock=MonotonicClock(),
        wall_time_s=lambda: 0.0,
        hook=ended.put,
    )
    counts = []
    with live_server(create_app(gateway)) as address:
        for _ in range(3):
            clients = [post(address, body) for _ in range(50)]
            for client in clients:
                if body is BODY:
                    assert client.recv(12) == b"HTTP/1.1 200"
                client.close()
            outcomes: list[str] = []
            while len(outcomes) < len(clients):
                event = ended.get(timeout=30)
                if isinstance(event, RequestEnded):
                    outcomes.append(event.outcome)
            assert set(outcomes) == {"cancelled"}
            counts.append(num_descriptors())
    assert engine.num_live == 0
    assert counts[1] <= counts[0]
    assert counts[2] <= counts[0]
