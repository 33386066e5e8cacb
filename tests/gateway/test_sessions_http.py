"""`DELETE /v1/sessions/{id}`."""

import msgspec
import pytest

from headway.core.errors import EngineUnavailable
from support.asgi_client import Exchange
from support.gateway_app import Service, service

pytestmark = pytest.mark.anyio


def delete(s: Service, path: str) -> Exchange:
    return Exchange(s.app, "DELETE", path)


async def test_a_conversation_is_released_once() -> None:
    s = service()
    s.engine.sessions = {("", "talk")}
    async with delete(s, "/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 204
        assert await exchange.read_body() == b""
    assert s.engine.sessions == set()
    async with delete(s, "/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 404
        error = msgspec.json.decode(await exchange.read_body())["error"]
        assert error["code"] == "session_not_found"
        assert "talk" in error["message"]


async def test_another_tenants_conversation_is_not_ones_own() -> None:
    s = service()
    s.engine.sessions = {("somebody", "talk")}
    async with delete(s, "/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 404
        await exchange.read_body()
    assert s.engine.sessions == {("somebody", "talk")}


async def test_an_engine_that_is_away_says_when_to_ask_again() -> None:
    s = service()
    s.engine.refuse = EngineUnavailable("The engine is restarting; try again in a moment.", retry_after_s=3.0)
    async with delete(s, "/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 503
        assert exchange.headers["retry-after"] == "3"
        await exchange.read_body()


async def test_a_conversation_can_only_be_deleted() -> None:
    s = service()
    async with s.get("/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 405
        await exchange.read_body()
