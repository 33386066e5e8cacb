"""The engine process is killed under load: new callers are told, running ones wait, and the counters do not fall."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.real_server import engine_of, eventually, real_server, text_of, wait_for_engine

pytestmark = pytest.mark.native


def counters(samples: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in samples.items() if name.partition("{")[0].endswith(COUNTED)}


NUM_TOKENS = 6000
"""Two seconds of them: still at it when the engine is killed."""
COUNTED = ("_total", "_count", "_bucket", "_sum")


def test_a_killed_engine_is_replaced_and_answers_go_on(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        text = server.complete("self", max_tokens=32).json()["choices"][0]["text"]
        with server.stream(max_tokens=NUM_TOKENS) as stream:
            first = next(stream)
            whole = pool.submit(server.complete, max_tokens=NUM_TOKENS)
            assert eventually(lambda: server.metrics()["headway_requests_running"] == 2)
            before = server.metrics()
            os.kill(server.engine_pid, signal.SIGKILL)
            assert eventually(lambda: server.metrics()["headway_engine_restarts_total"] == 1)
            assert eventually(lambda: server.get("/ready").status_code == 200)
            second = wait_for_engine(server.process.pid)
            assert second != server.engine_pid
            os.kill(second, signal.SIGKILL)
            assert eventually(lambda: server.get("/ready").status_code == 503)
            ready = server.get("/ready")  # before it loads again so soon it waits a second
            assert ready.json()["models"] == {"tiny": "restarting"}
            refused = server.complete(max_tokens=1)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert server.get("/health").status_code == 200
            down = server.metrics()
            assert down["headway_engine_ready"] == 0
            assert down["headway_requests_running"] == 0
            assert down["headway_kv_cache_usage_ratio"] == 0
            *rest, last = stream
        assert last == "[DONE]"
        response = whole.result()
        assert response.status_code == 200
        assert response.json()["usage"]["completion_tokens"] == NUM_TOKENS
        assert text_of([first, *rest]) == response.json()["choices"][0]["text"]

        assert eventually(lambda: server.get("/ready").status_code == 200)
        assert wait_for_engine(server.process.pid) != second
        assert server.complete("self", max_tokens=32).json()["choices"][0]["text"] == text
        after = server.metrics()
        assert after["headway_engine_restarts_total"] == 2
        assert after["headway_requests_total{class=normal}{outcome=length}"] == 4
        assert not any(value for name, value in after.items() if "outcome=error" in name)
        for earlier, later in ((before, down), (down, after)):
            fallen = {name for name, value in counters(earlier).items() if later[name] < value}
            assert fallen == set()
        assert counters(before)
        assert "killed by SIGKILL" in server.stderr
        assert "restart in 1 s" in server.stderr
        assert "Traceback" not in server.stderr
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_a_server_whose_engine_is_gone_stops_at_once(tiny_model: Path, tmp_path: Path) -> None:
    with real_server(tiny_model, tmp_path) as server:
        os.kill(server.engine_pid, signal.SIGKILL)
        assert eventually(lambda: server.get("/ready").status_code == 503)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert engine_of(server.process.pid) is None
        assert "Traceback" not in server.stderr
