import pytest

from headway.core.clock import ManualClock
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.wire.profile import ProfileSettings
from support.asgi_client import Exchange
from support.gateway_app import served, service
from support.scripted_client import FakeEngineClient

pytestmark = pytest.mark.anyio

SETTINGS = ProfileSettings(role="You review code.", domain="Payments, in Go.", high_water=0.5)


async def test_a_program_learns_role_domain_and_window() -> None:
    async with service(config=GatewayConfig(profile=SETTINGS)).get("/v1/profile") as exchange:
        assert await exchange.read_json() == {
            "object": "profile",
            "model": "fake",
            "role": "You review code.",
            "domain": "Payments, in Go.",
            "window_tokens": 64,
            "high_water": 0.5,
        }


async def test_without_a_file_it_knows_the_window_all_the_same() -> None:
    async with service().get("/v1/profile") as exchange:
        found = await exchange.read_json()
    assert (found["role"], found["domain"], found["window_tokens"], found["high_water"]) == ("", "", 64, 0.75)


async def test_of_several_models_one_is_named() -> None:
    models = {name: served(FakeEngineClient(), name=name) for name in ("a/one", "two")}
    gateway = Gateway(models, config=GatewayConfig(), clock=ManualClock(), wall_time_s=lambda: 0.0)
    app = create_app(gateway)
    for query, status in ((b"model=a/one", 200), (b"model=a%2Fone", 200), (b"model=x", 404), (b"", 400)):
        exchange = Exchange(app, "GET", "/v1/profile")
        exchange._scope["query_string"] = query
        async with exchange:
            assert await exchange.read_status() == status
            await exchange.read_body()
