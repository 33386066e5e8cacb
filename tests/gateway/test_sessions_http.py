"""`DELETE /v1/sessions/{id}`."""

import msgspec
import pytest

from headway.core.errors import EngineUnavailable
from headway.gateway.config import GatewayConfig
from support.asgi_client import Exchange
from support.gateway_app import Service, service

pytestmark = pytest.mark.anyio


def delete(s: Service, path: str, tenant: str | None = None) -> Exchange:
    return Exchange(s.app, "DELETE", path, headers={} if tenant is None else {"X-Headway-Tenant": tenant})


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


async def test_a_name_with_a_slash_is_released_like_any() -> None:
    s = service()
    s.engine.sessions = {("", "team/talk")}
    async with delete(s, "/v1/sessions/team/talk") as exchange:  # so ASGI servers hand on team%2Ftalk
        assert await exchange.read_status() == 204
        await exchange.read_body()
    assert s.engine.sessions == set()


async def test_another_tenants_conversation_is_not_ones_own() -> None:
    s = service()
    s.engine.sessions = {("somebody", "talk")}
    async with delete(s, "/v1/sessions/talk") as exchange:
        assert await exchange.read_status() == 404
        await exchange.read_body()
    assert s.engine.sessions == {("somebody", "talk")}


@pytest.mark.parametrize(("trusts", "status"), [(True, 204), (False, 404)])
async def test_the_tenant_counts_where_headers_are_trusted(trusts: bool, status: int) -> None:
    s = service(config=GatewayConfig(trust_headers=trusts))
    s.engine.sessions = {("somebody", "talk")}
    async with delete(s, "/v1/sessions/talk", "somebody") as exchange:
        assert await exchange.read_status() == status
        await exchange.read_body()


async def test_a_malformed_tenant_is_refused() -> None:
    s = service(config=GatewayConfig(trust_headers=True))
    async with delete(s, "/v1/sessions/talk", "two words") as exchange:
        assert await exchange.read_status() == 400
        await exchange.read_body()


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
