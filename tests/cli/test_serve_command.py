"""`headway serve` as a newcomer meets it: what it prints, that the printed line works, what it logs."""

import json
import shutil
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from headway.core.version import __version__
from support.real_server import COMMAND, LIMIT_S, SMALL, RealServer, eventually, headway, text_of

pytestmark = pytest.mark.native


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs the Debian package curl")
def test_the_printed_curl_line_streams_an_answer(shared_server: RealServer) -> None:
    start = shared_server.stdout.index("curl -N")
    line = shared_server.stdout[start : shared_server.stdout.index("\n\nStop with")]
    done = subprocess.run(line, shell=True, capture_output=True, timeout=LIMIT_S, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('data: {"id":"chatcmpl-')
    assert '"finish_reason":"' in done.stdout
    assert done.stdout.endswith("data: [DONE]\n\n")


def test_the_plain_endpoints_answer(shared_server: RealServer) -> None:
    assert shared_server.get("/health").json() == {"status": "ok"}
    assert shared_server.get("/ready").json() == {"status": "ready", "models": {"tiny": "ready"}}
    models = shared_server.get("/v1/models").json()["data"]
    assert [(model["id"], model["max_model_len"]) for model in models] == [("tiny", 32768)]
    metrics = shared_server.metrics()
    assert metrics["headway_engine_ready"] == 1
    assert metrics[f"headway_build_info{{version={__version__}}}"] == 1


def test_stdout_holds_the_address_and_nothing_else(shared_server: RealServer) -> None:
    lines = shared_server.stdout.splitlines()
    assert lines[0] == f"Headway serves tiny on {shared_server.url}"
    assert lines[-1] == "Stop with Ctrl-C."
    assert len(lines) == 6


def test_a_server_that_asks_nobody_says_that_it_is_for_this_machine(shared_server: RealServer) -> None:
    told = [json.loads(line)["message"] for line in shared_server.stderr.splitlines()]
    assert "nobody is asked who he is, so the server listens on loopback only (--access changes both)" in told


def test_every_log_line_is_json_also_the_engines(shared_server: RealServer) -> None:
    shared_server.complete(max_tokens=1)
    assert eventually(lambda: "/v1/completions" in shared_server.stderr)
    records = [json.loads(line) for line in shared_server.stderr.splitlines()]
    loggers = {record["logger"] for record in records}
    assert "headway.runner.native" in loggers  # runs in the engine process only
    assert len(loggers) > 1
    assert all(set(record) >= {"time", "level", "message"} for record in records)


def test_two_calls_give_the_same_text_streamed_or_not(shared_server: RealServer) -> None:
    whole = shared_server.complete("return", max_tokens=64).json()["choices"][0]["text"]
    with shared_server.stream("return", max_tokens=64) as events:
        assert text_of(list(events)) == whole


def test_a_port_in_use_is_told_before_the_model_is_looked_for(shared_server: RealServer) -> None:
    done = headway("serve", "no-such-model", "--port", str(shared_server.port))
    assert done.status == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"headway: Cannot listen on 127.0.0.1 port {shared_server.port} (Address already in use); "
        "choose another address with --host and --port.\n"
    )


def test_it_serves_although_stdout_cannot_be_written(tiny_model: Path, tmp_path: Path) -> None:
    """A full disk behind stdout, and a closed stdin whose number a socket would get."""
    log = tmp_path / "stderr"
    with log.open("wb") as stderr, Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *_serve(tiny_model)], stdout=full, stderr=stderr
        )
    try:
        assert eventually(lambda: "could not be printed on stdout" in log.read_text())
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


def test_it_serves_with_every_standard_stream_closed(tiny_model: Path) -> None:
    launcher = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # free again in a moment
    process = subprocess.Popen([*launcher, *_serve(tiny_model, str(port))])
    try:
        assert eventually(lambda: _accepts(port))
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def _serve(model: Path, port: str = "0") -> tuple[str, ...]:
    return (*COMMAND, "serve", str(model), *SMALL, "--port", port)


def _accepts(port: int) -> bool:
    try:
        response = httpx2.get(f"http://127.0.0.1:{port}/ready", timeout=LIMIT_S)
    except httpx2.HTTPError:
        return False
    return response.status_code == 200
