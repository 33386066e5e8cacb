"""The benchmark of the gateway's own cost measures what it says: real layers, whole answers, the right bytes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway_overhead.callers import make_tokens
from gateway_overhead.cases import CASES, NULL
from gateway_overhead.load import BODY_BYTES, NUM_EVENTS, request
from gateway_overhead.model import BEGUN, QUEUED, ScriptedEngine
from gateway_overhead.render import render
from gateway_overhead.server import build
from headway.cli.service import Service
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.client import EngineClient
from support.asgi_client import Exchange


def sent(service: Service, data: bytes) -> Exchange:
    """The request that goes over the benchmark's socket, to the application."""
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    method, path, _ = line.split()
    headers: Mapping[str, str] = dict(field.split(": ", 1) for field in fields)
    return Exchange(service.app, method, path, body, headers)


@pytest.mark.anyio
@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("in_turns", [False, True])
async def test_an_answer_has_the_events_that_the_client_counts(
    tmp_path: Path, *, resumable: bool, in_turns: bool
) -> None:
    store = tmp_path / "tokens.sqlite3"
    (token,) = await make_tokens(store, 1)
    service = await build(store, "memory", in_turns=in_turns)
    async with sent(service, request(token, resumable=resumable)) as exchange:
        body = await exchange.read_body()
    assert body.count(b"data: ") == NUM_EVENTS + 3
    assert (b"id: " in body) == resumable
    assert exchange.headers["x-ratelimit-limit-tokens"] == "10000000"
    async with sent(service, request(None, resumable=resumable)) as exchange:
        assert await exchange.read_status() == 401
    await service.gateway.door.close()
    service.gateway.close()


def test_a_body_has_its_size() -> None:
    for token in (None, "hw_x"):
        assert len(request(token, resumable=True).partition(b"\r\n\r\n")[2]) == BODY_BYTES


@pytest.mark.anyio
async def test_streams_that_wait_do_so_until_they_are_cancelled() -> None:
    engine: EngineClient = ScriptedEngine()
    for max_tokens, num_steps in ((QUEUED, 0), (BEGUN, 1)):
        steps = engine.submit_nowait(
            Request(request_id="r", token_ids=(1,), sampling=SamplingParams(), max_tokens=max_tokens)
        )
        for _ in range(num_steps):
            await anext(steps)
        waiting = asyncio.ensure_future(anext(steps))
        await asyncio.sleep(0)
        assert not waiting.done()
        engine.cancel_nowait("r")
        await waiting
        with pytest.raises(StopAsyncIteration):
            await anext(steps)


def test_the_table_tells_what_is_beyond_the_null_server() -> None:
    floor = {"p50": 0.1, "p99": 0.2}
    figures: dict[str, Any] = {"rate": 500, "first_ms": floor, "last_ms": floor, "cpu_ms": 0.1}
    case = {**figures, "rate": 250, "last_ms": {"p50": 0.6, "p99": 2.1}}
    data = {
        "date": "2026-01-01",
        "machine": {"cpu": "A processor", "cores": 2},
        "rate": 500,
        "seconds": 5,
        "rounds": 3,
        "events": NUM_EVENTS,
        "body_bytes": BODY_BYTES,
        "callers": 50,
        "cases": {NULL: figures, CASES[0].name: case},
        "idle_streams": 2000,
        "idle_bytes": {"plain": {"queued": 30720, "begun": 40960}},
    }
    table = render(data, "raw.json").splitlines()
    assert f"| {CASES[0].name} | 250 | 0.00 | 0.10 | 0.50 | 2.00 | 0.10 |" in table
    assert "| plain | 30 | 40 |" in table
