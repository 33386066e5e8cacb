"""What a request's headers ask of scheduling, from the socket's side to the engine's request."""

import logging
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from headway.core.events import FirstToken, RequestEnded
from headway.core.messages import ChoiceFinished, Finished, Usage
from headway.core.request import Request
from headway.gateway.config import GatewayConfig
from headway.obs.metrics import Metrics
from headway.wire import openapi
from support.asgi_client import Exchange
from support.gateway_app import Service, service
from support.scripted_client import Batch, answering

pytestmark = pytest.mark.anyio

MS = 1_000_000
HEADERS = {
    "X-Headway-Class": "high",
    "X-Headway-Tenant": "team-a",
    "X-Headway-TTFT-ms": "480",
    "X-Headway-ITL-ms": "62.5",
    "X-Headway-Session": "s1",
}
MESSAGES = [{"role": "user", "content": "hi"}]
CALLS: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": ["hi", "ho"]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 5},
    "/v1/embeddings": {"input": ["hi", "ho"]},
}
TRUSTING = GatewayConfig(trust_headers=True)


def embed(request: Request) -> Iterable[Batch]:
    usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=0)
    end = Finished(request_id=request.request_id, usage=usage, embedding=bytes(8))
    yield (ChoiceFinished(request.request_id, 0, "stop"), end)


def serving(path: str, config: GatewayConfig) -> Service:
    return service(embed if path == "/v1/embeddings" else answering("ab"), config=config, pooling="last")


async def ask(s: Service, path: str, headers: dict[str, str], **fields: object) -> tuple[int, dict[str, Any]]:
    async with s.post(path, {**CALLS[path], **fields}, headers) as exchange:
        body: dict[str, Any] = msgspec.json.decode(await exchange.read_body())
    assert exchange.status is not None
    return exchange.status, body


@pytest.mark.parametrize("path", CALLS)
async def test_what_they_ask_for_reaches_the_engine_with_every_prompt(path: str) -> None:
    s = serving(path, TRUSTING)
    status, _ = await ask(s, path, HEADERS)
    assert status == 200
    assert len(s.engine.requests) == (2 if path in ("/v1/completions", "/v1/embeddings") else 1)
    for request in s.engine.requests:
        assert request.service_class == "high"
        assert request.tenant == "team-a"
        assert request.ttft_deadline_ns == 480 * MS
        assert request.itl_target_ns == 62_500_000
        assert request.session == "s1"
        assert request.arrival_ns == s.clock.now_ns()


@pytest.mark.parametrize("headers", [HEADERS, {"X-Headway-Class": "urgent"}], ids=["valid", "malformed"])
@pytest.mark.parametrize("path", CALLS)
async def test_a_stranger_cannot_promote_himself(path: str, headers: dict[str, str]) -> None:
    s = serving(path, GatewayConfig())
    status, _ = await ask(s, path, headers)
    assert status == 200
    for request in s.engine.requests:
        alone = Request(
            request_id=request.request_id,
            token_ids=request.token_ids,
            sampling=request.sampling,
            max_tokens=request.max_tokens,
            stop_token_ids=request.stop_token_ids,
            pooling=request.pooling,
            arrival_ns=request.arrival_ns,
        )
        assert request == alone


@pytest.mark.parametrize("path", CALLS)
async def test_a_malformed_one_is_a_400_in_the_apis_shape_and_nothing_reaches_the_engine(path: str) -> None:
    s = serving(path, TRUSTING)
    status, body = await ask(s, path, HEADERS | {"X-Headway-TTFT-ms": "soon"})
    assert status == 400
    assert "`x-headway-ttft-ms` must be a number of milliseconds" in body["error"]["message"]
    if path != "/v1/messages":  # Anthropic's errors name no field
        assert body["error"]["param"] == "x-headway-ttft-ms"
        assert body["error"]["code"] == "invalid_request"
    assert s.engine.requests == []
    assert s.gateway.num_active == 0


async def test_one_that_comes_twice_is_refused() -> None:
    s = serving("/v1/completions", TRUSTING)
    status, body = await ask(s, "/v1/completions", {"x-headway-class": "low", "X-Headway-Class": "high"})
    assert (status, body["error"]["param"]) == (400, "x-headway-class")


@pytest.mark.parametrize(
    ("headers", "share_prefixes", "salts"),
    [
        ([{}, {"x-headway-tenant": "a"}, {"x-headway-tenant": "b"}], False, ["", "tenant:a", "tenant:b"]),
        ([{}, {"x-headway-tenant": "a"}, {"x-headway-tenant": "b"}], True, ["", "", ""]),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
async def test_each_tenant_has_a_prefix_cache_of_its_own_unless_all_share_one(
    path: str, headers: list[dict[str, str]], share_prefixes: bool, salts: list[str]
) -> None:
    s = serving(path, GatewayConfig(trust_headers=True, share_prefixes=share_prefixes))
    field = "input" if path == "/v1/embeddings" else "prompt"
    for one in headers:
        await ask(s, path, one, **{field: "hi"})
    assert [request.salt for request in s.engine.requests] == salts
    assert [request.tenant for request in s.engine.requests] == ["", "a", "b"]


async def test_the_log_tells_class_and_tenant_where_they_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    for config, headers in ((TRUSTING, HEADERS), (TRUSTING, {}), (GatewayConfig(), HEADERS)):
        await ask(serving("/v1/completions", config), "/v1/completions", headers)
    lines = [record.__dict__ for record in caplog.records if record.name == "headway.access"]
    assert [(line.get("class"), line.get("tenant")) for line in lines] == [
        ("high", "team-a"),
        ("normal", None),
        (None, None),
    ]


async def test_events_and_metrics_carry_the_class_and_never_the_tenant() -> None:
    s = serving("/v1/completions", TRUSTING)
    await ask(s, "/v1/completions", HEADERS)
    assert [event.service_class for event in s.events if isinstance(event, FirstToken | RequestEnded)] == [
        "high",
        "high",
    ]
    metrics = Metrics()
    for event in s.events:
        metrics(event)
    page = metrics.page()[1].decode()
    assert 'headway_requests_total{class="high",error="",model="fake",outcome="stop"} 1.0' in page
    assert "team-a" not in page


def test_the_openapi_document_has_them_where_they_count() -> None:
    paths: Any = openapi.document()["paths"]
    having = {
        path: {one["name"] for one in methods.get("post", {}).get("parameters", ())}
        for path, methods in paths.items()
    }
    names = {name.lower() for name in HEADERS}
    assert {path: found for path, found in having.items() if found} == dict.fromkeys(
        (*CALLS, "/v1/summary"), names
    )


async def test_web_pages_of_an_allowed_origin_may_send_them() -> None:
    app = service(config=GatewayConfig(allow_origins=("https://chat.example.org",))).app
    names = ", ".join(sorted(name.lower() for name in HEADERS))
    preflight = {
        "origin": "https://chat.example.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": names,
    }
    async with Exchange(app, "OPTIONS", "/v1/chat/completions", headers=preflight) as exchange:
        assert await exchange.read_status() == 200
        await exchange.read_body()
    allowed = exchange.headers["access-control-allow-headers"]
    assert set(names.split(", ")) <= set(allowed.replace(" ", "").split(","))
