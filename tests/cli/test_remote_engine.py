"""`headway serve --engine`: a server in front of another, both real. The same answers through both; what loss means."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from support.real_server import (
    COMMAND,
    LIMIT_S,
    RealServer,
    end,
    eventually,
    headway,
    parse,
    read_until,
    real_server,
    text_of,
)

pytestmark = pytest.mark.native


class Front(RealServer):
    """A `headway serve --engine` that runs; it has no engine process."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdout: str, stderr_path: Path) -> None:
        self.process = process
        self.stdout = stdout
        self._stderr_path = stderr_path
        match = re.search(r"http://127\.0\.0\.1:(\d+)", stdout)
        assert match is not None, stdout
        self.url, self.port = match[0], int(match[1])


@contextmanager
def in_front(url: str, model: Path, folder: Path, *arguments: str) -> Iterator[Front]:
    stderr_path = folder / "front.txt"
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(
            (
                *COMMAND,
                "serve",
                "--engine",
                f"{url}/v1",
                "--tokenizer",
                str(model),
                "--port",
                "0",
                *arguments,
            ),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield Front(process, read_until(process, b"Stop with Ctrl-C.\n"), stderr_path)
    finally:
        end(process)


def is_ready(server: RealServer) -> bool:
    return server.get("/ready").status_code == 200


FIELDS: list[dict[str, object]] = [
    {},
    {"temperature": 0.9, "seed": -7, "n": 3, "top_k": 20, "min_p": 0.01},
    {"temperature": 1.2, "seed": 2**63 - 1, "presence_penalty": 0.5, "logit_bias": {"5": 3}},
    {"logprobs": 2},
    {"stop": ["e"], "ignore_eos": False},
    {"response_format": {"type": "json_object"}, "seed": 1, "temperature": 1},
]


def test_the_same_answers_through_both(tiny_model: Path, shared_server: RealServer, tmp_path: Path) -> None:
    with in_front(shared_server.url, tiny_model, tmp_path) as front:
        assert is_ready(front)
        for fields in FIELDS:
            asked = {"max_tokens": 24, "return_token_ids": True, **fields}
            direct, through = (server.complete("self", **asked).json() for server in (shared_server, front))
            for body in (direct, through):
                del body["id"], body["created"]
                del body["usage"]["prompt_tokens_details"]
            assert through == direct, fields
        with front.stream("self", max_tokens=24) as stream:
            streamed = text_of(list(stream))
        assert streamed == shared_server.complete("self", max_tokens=24).json()["choices"][0]["text"]
        refused = front.complete("self", guided_regex="(")
        assert refused.status_code == 400
        embedding = httpx2.post(f"{front.url}/v1/embeddings", json={"input": "x"}, timeout=LIMIT_S)
        assert embedding.status_code == 400
        front.signal(signal.SIGTERM)
        assert front.wait() == 0
        assert "Traceback" not in front.stderr


def test_who_leaves_frees_the_engine(tiny_model: Path, shared_server: RealServer, tmp_path: Path) -> None:
    with in_front(shared_server.url, tiny_model, tmp_path) as front:
        with front.stream(max_tokens=30_000) as stream:
            next(stream)
            assert front.metrics()["headway_requests_running"] == 1
            assert front.metrics()["headway_engine_concurrency_limit"] >= 1
        assert eventually(lambda: shared_server.is_idle() and not front.metrics()["headway_requests_running"])


def test_a_gateway_waits_for_its_engine_and_survives_it(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path) as first:
        url, port = first.url, first.port
    with in_front(url, tiny_model, tmp_path) as front:
        assert front.get("/ready").json()["models"] == {"tiny": "starting"}
        refused = front.complete()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert front.get("/v1/models").status_code == 200
        with real_server(tiny_model, tmp_path, "--port", str(port)) as second, ThreadPoolExecutor(1) as pool:
            assert eventually(lambda: is_ready(front))
            whole = second.complete("self", max_tokens=6000).json()["choices"][0]["text"]
            with (
                front.stream("self", max_tokens=6000) as stream,
                front.stream(n=2, temperature=1, max_tokens=6000) as lost,
            ):
                events = [next(stream)]
                next(lost)
                engine = second.engine_pid
                os.kill(second.process.pid, signal.SIGKILL)
                rest = pool.submit(list, stream)
                assert eventually(lambda: front.get("/ready").json()["models"] == {"tiny": "restarting"})
                assert front.complete().status_code == 503
                assert eventually(lambda: not Path(f"/proc/{engine}").exists())
                with real_server(tiny_model, tmp_path, "--port", str(port)):
                    assert text_of(events + rest.result()) == whole
                    assert is_ready(front)
                    *_, last = lost
                    assert parse(last)["error"]["code"] == "engine_died", (
                        "of several choices none goes on exactly"
                    )
        assert "Traceback" not in front.stderr


def refusal(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = headway("serve", "--port", "0", *arguments, env=env)
    assert (done.status, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


def test_what_cannot_be_served_is_one_line(tiny_model: Path, shared_server: RealServer) -> None:
    url, model = f"{shared_server.url}/v1", str(tiny_model)
    assert "--tokenizer" in refusal("--engine", url)
    assert "--engine" in refusal("--tokenizer", model)
    assert "MODEL" in refusal(model, "--engine", url, "--tokenizer", model)
    assert "address" in refusal("--engine", "ftp://x", "--tokenizer", model)
    assert "NO_KEY" in refusal("--engine", url, "--tokenizer", model, "--engine-key-env", "NO_KEY")


def test_a_model_that_the_engine_does_not_serve(shared_server: RealServer, tiny_model: Path) -> None:
    done = headway(
        *("serve", "--port", "0", "--engine", f"{shared_server.url}/v1", "--tokenizer", str(tiny_model)),
        *("--engine-model", "another"),
    )
    assert done.status == 2
    assert "does not serve another" in done.stderr
