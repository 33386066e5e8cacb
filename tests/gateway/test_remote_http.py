"""What callers see of a remote engine's refusals and failures, over HTTP (scenarios 10 and 13)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.engine.remote import RemoteEngineClient
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.flow.remote import RemoteGate
from headway.flow.remote_turns import RemoteTurns
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from support.asgi_client import Exchange
from support.gateway_app import served
from support.scripted_upstream import HEAD, Script, ScriptedUpstream, chunk, event, refusal, saying, upstream
from support.wound_sleep import WoundSleep

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asking(script: Script, **fields: object) -> AsyncIterator[tuple[Exchange, ScriptedUpstream]]:
    """Ask a gateway whose engine is a server by script."""
    clock = ManualClock()
    async with upstream(script) as server:
        engine = RemoteEngineClient(
            RemoteConfig(model="fake", url=server.url),
            RemoteText(vocab_size=257),
            clock,
            RemoteTurns(RemoteGate(clock), max_waiting_tokens=1000),
            sleep=WoundSleep(clock),
        )
        await engine.start()
        models = {"fake": served(engine)}
        gateway = Gateway(models, config=GatewayConfig(), clock=clock, wall_time_s=lambda: 0.0)
        body = msgspec.json.encode({"prompt": "hi", **fields})
        async with Exchange(create_app(gateway), "POST", "/v1/completions", body) as exchange:
            yield exchange, server
        gateway.close()
        await engine.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "code"), [(429, "upstream_limited"), (503, "engine_unavailable")])
async def test_a_limit_there_is_told_with_its_wait(status: int, code: str, stream: bool) -> None:
    async with asking(saying(refusal(status, headers="Retry-After: 17\r\n")), stream=stream) as (exchange, _):
        assert await exchange.read_status() == status
        assert exchange.headers["retry-after"] == "17"
        assert msgspec.json.decode(await exchange.read_body())["error"]["code"] == code


async def test_an_error_within_a_stream_is_its_typed_end() -> None:
    wrong = event({"error": {"message": "boom", "code": 500}})
    async with asking(saying(HEAD, chunk(97), wrong), stream=True) as (exchange, _):
        first, last = await exchange.read_event(), await exchange.read_event()
        assert first is not None
        assert msgspec.json.decode(first)["choices"][0]["text"] == "a"
        assert last is not None
        assert msgspec.json.decode(last)["error"]["code"] == "upstream_failed"
        assert await exchange.read_event() is None
