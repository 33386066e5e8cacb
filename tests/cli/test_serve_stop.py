"""How `headway serve` stops: drains on the first signal, gives up on the second, and ends while it loads."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.real_server import (
    COMMAND,
    LIMIT_S,
    SMALL,
    RealServer,
    end,
    eventually,
    is_alive,
    parse,
    real_server,
    wait_for_engine,
)

pytestmark = pytest.mark.native

NUM_TOKENS = 3_000
"""A stream of about a second."""
ENDLESS = 30_000
"""A stream of ten seconds and more, were it not ended."""


def refuses(server: RealServer) -> bool:
    """Return whether the server refuses new requests because it drains, and says when to come back."""
    response = server.complete(max_tokens=1)
    if response.status_code == 200:
        return False
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "draining"
    assert int(response.headers["retry-after"]) >= 1
    return True


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process while the context lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_refuses_what_is_new_and_finishes_what_runs(
    tiny_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with real_server(tiny_model, tmp_path) as server:
        with server.stream(max_tokens=NUM_TOKENS) as stream:
            events = [next(stream)]
            with stopped(server.engine_pid):  # so the stream runs for as long as the checks take
                server.signal(number)
                assert eventually(lambda: server.get("/ready").json()["models"] == {"tiny": "draining"})
                assert refuses(server)
                assert server.get("/health").status_code == 200
            events += stream
        assert server.wait() == 0
        assert not is_alive(server.engine_pid)
        assert (
            f"{number.name}: taking no new requests, finishing 1 within 30 s; a second signal"
            in server.stderr
        )
        assert "Traceback" not in server.stderr
        assert "leaked" not in server.stderr
    assert events[-1] == "[DONE]"
    assert parse(events[-2])["usage"]["completion_tokens"] == NUM_TOKENS
    assert parse(events[-3])["choices"][0]["finish_reason"] == "length"


def test_what_does_not_finish_in_time_is_told_so(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path, "--drain-timeout", "1") as server:
        with server.stream(max_tokens=ENDLESS) as stream:
            next(stream)
            server.signal(signal.SIGTERM)
            *_, last = stream
        assert parse(last)["error"]["code"] == "engine_died"
        assert server.wait() == 0
        assert not is_alive(server.engine_pid)
        assert "1 requests did not finish within 1 s" in server.stderr
        assert "Traceback" not in server.stderr
        assert "leaked" not in server.stderr


def test_a_second_signal_stops_at_once(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path, "--drain-timeout", "600") as server:
        with server.stream(max_tokens=ENDLESS) as stream:
            next(stream)
            server.signal(signal.SIGTERM)
            assert eventually(lambda: refuses(server))
            server.signal(signal.SIGINT)
            *_, last = stream
        assert "error" in parse(last)
        assert server.wait() == 0
        assert not is_alive(server.engine_pid)
        assert "SIGINT again: stopping now" in server.stderr
        assert "Traceback" not in server.stderr
        assert "leaked" not in server.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_server_that_is_loading(tiny_model: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        (*COMMAND, "serve", str(tiny_model), *SMALL), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        engine_pid = wait_for_engine(process.pid)
        os.kill(engine_pid, signal.SIGSTOP)  # it loads for ever
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    finally:
        end(process)
    assert process.returncode == 128 + number
    assert stdout == b""
    assert stderr.decode().endswith(f"{number.name}: stopped before the model was loaded\n")
    assert b"Traceback" not in stderr
    assert not is_alive(engine_pid)


def test_the_engine_does_not_outlive_a_gateway_that_is_killed(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path) as server, server.stream(max_tokens=ENDLESS) as stream:
        next(stream)
        server.signal(signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        assert eventually(lambda: not is_alive(server.engine_pid), 10)
