import re

import msgspec
import pytest
from starlette.routing import Route

from headway.core.caller import Caller
from headway.core.clock import ManualClock
from headway.core.errors import EngineUnavailable, Unauthenticated
from headway.core.events import EngineState
from headway.core.messages import EngineInfo
from headway.core.quota import Quota, Quotas
from headway.core.secret import Secret
from headway.gateway.app import create_app, create_router
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.gateway import Gateway
from headway.gateway.guard import OPEN_PATHS
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from headway.wire.rate_headers import rate_headers
from support.asgi_client import Exchange
from support.gateway_app import served, service
from support.scripted_client import FakeEngineClient, answering

pytestmark = pytest.mark.anyio


class Nobody:
    """Knows no caller."""

    async def identify(self, shown: Secret | None) -> Caller:
        del shown
        raise Unauthenticated("No.")

    async def close(self) -> None:
        """Nothing is held."""


CARD = {
    "id": "fake",
    "object": "model",
    "created": 1_700_000_000,
    "owned_by": "headway",
    "max_model_len": 64,
}


async def test_models_and_one_model() -> None:
    s = service()
    async with s.get("/v1/models") as exchange:
        assert await exchange.read_json() == {"object": "list", "data": [CARD]}
    async with s.get("/v1/models/fake") as exchange:
        assert await exchange.read_json() == CARD
    async with s.get("/v1/models/other") as exchange:
        assert await exchange.read_status() == 404
        assert msgspec.json.decode(await exchange.read_body())["error"]["code"] == "model_not_found"


async def test_health_is_alive_whatever_the_engine_does() -> None:
    s = service()
    s.engine.state = "restarting"
    async with s.get("/health") as exchange:
        assert await exchange.read_status() == 200
        assert await exchange.read_json() == {"status": "ok"}


@pytest.mark.parametrize("state", ["starting", "restarting", "draining", "closed"])
async def test_ready_follows_the_engine(state: EngineState) -> None:
    s = service()
    async with s.get("/ready") as exchange:
        assert await exchange.read_status() == 200
        assert await exchange.read_json() == {"status": "ready", "models": {"fake": "ready"}}
    s.engine.state = state
    async with s.get("/ready") as exchange:
        assert await exchange.read_status() == 503
        assert exchange.headers["retry-after"] == "2"
        assert await exchange.read_json() == {"status": "not ready", "models": {"fake": state}}


async def test_ready_is_false_while_draining() -> None:
    s = service()
    s.gateway.drain_nowait()
    async with s.get("/ready") as exchange:
        assert await exchange.read_status() == 503


async def test_metrics_are_whoever_gives_them() -> None:
    s = service(metrics=lambda: ("text/plain; version=1", b"a 1\n"))
    async with s.get("/metrics") as exchange:
        assert await exchange.read_status() == 200
        assert await exchange.read_body() == b"a 1\n"
        assert exchange.headers["content-type"] == "text/plain; version=1"
    async with service().get("/metrics") as exchange:
        assert await exchange.read_status() == 404


def two_models(config: GatewayConfig | None = None) -> tuple[Gateway, FakeEngineClient, FakeEngineClient]:
    first, second = FakeEngineClient(script=answering("1")), FakeEngineClient(script=answering("2"))
    models = {"a/one": served(first, name="a/one"), "two": served(second, name="two")}
    gateway = Gateway(models, config=config or GatewayConfig(), clock=ManualClock(), wall_time_s=lambda: 0.0)
    return gateway, first, second


async def test_several_models_are_told_apart() -> None:
    gateway, _, second = two_models()
    app = create_app(gateway)
    for model, text in (("a/one", "1"), ("two", "2")):
        body = msgspec.json.encode({"model": model, "prompt": "x"})
        async with Exchange(app, "POST", "/v1/completions", body) as exchange:
            answer = msgspec.json.decode(await exchange.read_body())
        assert (answer["model"], answer["choices"][0]["text"]) == (model, text)
    async with Exchange(app, "POST", "/v1/completions", b'{"prompt":"x"}') as exchange:
        assert await exchange.read_status() == 400
        assert "a/one, two" in (await exchange.read_body()).decode()
    async with Exchange(app, "GET", "/v1/models/a/one") as exchange:
        assert (await exchange.read_json())["id"] == "a/one"
    second.state = "restarting"
    async with Exchange(app, "GET", "/ready") as exchange:
        assert await exchange.read_status() == 503


async def test_a_model_whose_engine_was_never_ready_is_listed_without_its_context() -> None:
    class Loading(FakeEngineClient):
        @property
        def info(self) -> EngineInfo:
            raise EngineUnavailable("Loading.")

        @info.setter
        def info(self, value: EngineInfo) -> None:
            pass

    gateway = Gateway(
        {"m": served(Loading(), name="m")},
        config=GatewayConfig(),
        clock=ManualClock(),
        wall_time_s=lambda: 0.0,
    )
    async with Exchange(create_app(gateway), "GET", "/v1/models/m") as exchange:
        assert (await exchange.read_json())["max_model_len"] is None


@pytest.mark.parametrize(
    ("allowed", "expected"), [((), None), (("http://localhost:3000",), "http://localhost:3000")]
)
async def test_web_pages_may_call_only_where_allowed(allowed: tuple[str, ...], expected: str | None) -> None:
    gateway, _, _ = two_models(GatewayConfig(allow_origins=allowed))
    headers = {"origin": "http://localhost:3000"}
    app = create_app(gateway)
    async with Exchange(app, "GET", "/v1/models", headers=headers) as exchange:
        await exchange.read_body()
    assert exchange.headers.get("access-control-allow-origin") == expected
    exposed = exchange.headers.get("access-control-expose-headers", "").split(", ")
    readable = rate_headers(Quotas(requests=Quota(1, 1, 0), tokens=Quota(1, 1, 0)))
    assert ({name for name, _ in readable} <= set(exposed)) == (expected is not None)
    async with Exchange(app, "POST", "/v1/completions", b"{", headers) as exchange:
        assert await exchange.read_status() == 400  # an error can be read where an answer can
        await exchange.read_body()
    assert exchange.headers.get("access-control-allow-origin") == expected
    preflight = headers | {"access-control-request-method": "POST"}
    async with Exchange(app, "OPTIONS", "/v1/completions", headers=preflight) as exchange:
        assert await exchange.read_status() == (200 if expected else 405)
        await exchange.read_body()


@pytest.mark.parametrize("with_streams", [False, True])
async def test_every_route_is_in_the_openapi_document_and_every_reference_resolves(
    with_streams: bool,
) -> None:
    log = MemoryLog(StreamLimits(), lambda: 0)
    s = service(streams=Streams(log, ManualClock()) if with_streams else None)
    async with s.get("/openapi.json") as exchange:
        text = (await exchange.read_body()).decode()
    document = msgspec.json.decode(text)
    routes = {
        route.path.replace(":path", "")
        for route in create_router(s.gateway).routes
        if isinstance(route, Route)
    }
    assert set(document["paths"]) == routes
    assert ("/v1/streams/{stream}" in routes) is with_streams
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names == set(document["components"]["schemas"])


async def test_the_openapi_document_says_who_asks_for_tokens() -> None:
    async with service().get("/openapi.json") as exchange:
        document = msgspec.json.decode(await exchange.read_body())
    assert "security" not in document
    async with service(door=Door(Nobody())).get("/openapi.json") as exchange:
        document = msgspec.json.decode(await exchange.read_body())
    assert set(document["components"]["securitySchemes"]) == {
        name for one in document["security"] for name in one
    }
    for path, item in document["paths"].items():
        for method in {"get", "post", "delete"} & item.keys():
            assert (item[method].get("security") == []) is (path in OPEN_PATHS)
            assert ({"401", "403", "429"} <= item[method]["responses"].keys()) is (path not in OPEN_PATHS)
