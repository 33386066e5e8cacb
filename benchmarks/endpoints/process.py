"""A server's life: started on a free port of loopback, waited for, asked how long a prompt is, ended by its process id."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from endpoints.servers import MODEL_NAME, Server

START_TIMEOUT_S = 900
"""vLLM compiles the model when it starts, which takes a minute on two idle cores and ten on busy ones."""

_STOP_TIMEOUT_S = 30
_LOOK_EVERY_S = 0.05
_ANSWER_TIMEOUT_S = 60

PROBE = "Count: 1234, 56 … naïve café 日本.\n\n```python\ndef f(x):\n    return x ** 2  # squared\n```"
"""Digits, accents, other scripts and indented code: what tokenizers disagree on."""


class ServerFailed(Exception):
    """A server did not start or answer; the message names its log."""


def leave_on_sigterm() -> None:
    """Let the signal to stop end the server that runs, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def running(server: Server, log: Path) -> Iterator[int]:
    """Start a server and yield its port once it serves; end it. Raises ServerFailed."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.on_port(port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | server.environment,
            start_new_session=True,
        )
    try:
        wait_ready(server, port, process, log)
        yield port
    finally:
        end(process)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_ready(server: Server, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the server says that it serves; raises ServerFailed if it ends or takes too long."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ServerFailed(
                f"{server.name} ended with status {process.returncode}: {' '.join(last)} ({log})"
            )
        if status(port, server.health) == http.client.OK:
            return
        time.sleep(_LOOK_EVERY_S)
    raise ServerFailed(f"{server.name} did not start within {START_TIMEOUT_S} s ({log})")


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a server to stop, then end it and what it has left in its session."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print(f"process {process.pid} does not stop; it is killed", file=sys.stderr)
        process.kill()
        process.wait()
    try:  # what the server started and did not wait for; the session is its own
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def status(port: int, path: str) -> int | None:
    """Return the status of a GET; None if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def count_prompt_tokens(port: int) -> int:
    """Return how many tokens the server makes of `PROBE` with its chat template; raises ServerFailed."""
    body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": PROBE}], "max_tokens": 1}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = json.loads(connection.getresponse().read())
        return int(answer["usage"]["prompt_tokens"])
    except (OSError, ValueError, KeyError) as error:
        raise ServerFailed(f"no usage of the probe: {error!r}") from error
    finally:
        connection.close()
