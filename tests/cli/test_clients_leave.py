"""Clients leave the real server at every stage; it is idle again at once, and nobody else's text changes."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.real_server import RealServer, eventually, num_descriptors, real_server

pytestmark = pytest.mark.native

LONG_PROMPT = list(range(3, 259)) * 60
"""15,360 tokens: 960 steps at the 16 prompt tokens a step that the server is started with."""
NUM_CLIENTS, NUM_ROUNDS = 200, 3


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with room for two sequences, which prefills slowly and guesses nothing ahead, so that answers take long."""
    folder = tmp_path_factory.mktemp("server")
    slow = ("--max-prefill-tokens", "16", "--max-draft-tokens", "0")
    with real_server(tiny_model, folder, "--max-num-seqs", "2", *slow) as server:
        yield server
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.stderr


@pytest.fixture(scope="module")
def alone(server: RealServer) -> dict[str, object]:
    """What the bystander gets when nobody else is there."""
    return bystander(server)


def bystander(server: RealServer) -> dict[str, object]:
    """Call the server as somebody who stays for about two seconds: long enough to be seen there by who polls."""
    choice: dict[str, object] = server.complete("def f", max_tokens=6_000, logprobs=1).json()["choices"][0]
    return choice


@contextmanager
def client(server: RealServer, **fields: object) -> Iterator[socket.socket]:
    """A client that sends a request; it leaves, answered or not, with the context."""
    body = json.dumps({"temperature": 0, "ignore_eos": True, "max_tokens": 10_000, **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        yield connection


def sees(server: RealServer, **expected: float) -> Callable[[], bool]:
    def look() -> bool:
        now = server.metrics()
        return all(now[f"headway_{name}"] == value for name, value in expected.items())

    return look


def test_leaving_while_queued(server: RealServer, alone: dict[str, object]) -> None:
    with ThreadPoolExecutor(1) as pool, client(server, prompt="x", stream=True):
        other = pool.submit(bystander, server)
        assert eventually(sees(server, requests_running=2))
        with client(server, prompt="y", stream=True):
            assert eventually(sees(server, requests_waiting=1))
        assert eventually(sees(server, requests_waiting=0, tokens_waiting=0))
        assert other.result() == alone
    assert eventually(server.is_idle)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_leaving_in_prefill(server: RealServer, alone: dict[str, object], stream: bool) -> None:
    before = server.metrics()["headway_prefill_tokens_total"]
    prompt = [
        300 if stream else 301,
        *LONG_PROMPT,
    ]  # not the same: the second would come from the prefix cache
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bystander, server)
        assert eventually(sees(server, requests_running=1))
        with client(server, prompt=prompt, stream=stream):
            assert eventually(lambda: server.metrics()["headway_prefill_tokens_total"] >= before + 64)
        assert other.result() == alone
    assert eventually(server.is_idle)
    assert server.metrics()["headway_prefill_tokens_total"] < before + len(prompt)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
def test_leaving_in_the_middle_of_the_answer(
    server: RealServer, alone: dict[str, object], stream: bool
) -> None:
    before = server.metrics()["headway_decode_tokens_total"]
    with ThreadPoolExecutor(1) as pool:
        with client(server, prompt="z", stream=stream, max_tokens=30_000) as connection:
            if stream:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            assert eventually(lambda: server.metrics()["headway_decode_tokens_total"] >= before + 10)
            other = pool.submit(bystander, server)
            assert eventually(sees(server, requests_running=2))
        assert other.result() == alone
    assert eventually(server.is_idle)
    assert server.metrics()["headway_decode_tokens_total"] < before + 30_000


def test_200_clients_leave_at_once_round_after_round(server: RealServer) -> None:
    pids = (server.process.pid, server.engine_pid)

    def round_of(number: int) -> None:
        connections = []
        for index in range(NUM_CLIENTS):
            entered = client(server, prompt=f"{number} {index} " * (index % 7 + 1), stream=index % 3 != 0)
            connections.append((entered, entered.__enter__()))
        connections[1][1].recv(1)
        for entered, _ in connections:
            entered.__exit__(None, None, None)
        assert eventually(server.is_idle)

    assert eventually(server.is_idle)
    before = [num_descriptors(pid) for pid in pids]
    for number in range(NUM_ROUNDS):
        round_of(number)
        assert eventually(
            lambda: all(num_descriptors(pid) <= count for pid, count in zip(pids, before, strict=True))
        )
    assert eventually(server.is_idle)
    ended = {name: value for name, value in server.metrics().items() if "headway_requests_total" in name}
    assert sum(value for name, value in ended.items() if "outcome=error" in name) == 0
