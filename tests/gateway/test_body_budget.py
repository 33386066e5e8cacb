"""What bodies take while they are received, and that nothing of them is kept afterwards."""

import tracemalloc

import msgspec
import pytest

from headway.core.errors import QueueFull
from headway.gateway.body_budget import FREE_BYTES, BodyBudget
from headway.gateway.config import GatewayConfig
from headway.wire.responses_request import parse_responses
from support.asgi_client import Exchange
from support.gateway_app import Service, service


def test_what_exceeds_the_free_part_of_each_body_is_counted_and_given_back() -> None:
    budget = BodyBudget(100)
    with budget.body() as first, budget.body() as second:
        first.grow(FREE_BYTES)
        first.grow(60)
        second.grow(FREE_BYTES + 40)
        with pytest.raises(QueueFull):
            second.grow(1)
        with budget.body() as small:
            small.grow(FREE_BYTES)
        first.grow(0)
    with budget.body() as third:
        third.grow(FREE_BYTES + 100)


def unfinished(s: Service, num_bytes: int) -> Exchange:
    """A client that has sent so much of its body and goes on sending."""
    exchange = s.post("/tokenize", b"", complete=False)
    exchange.send(b'{"prompt":"' + b"x" * num_bytes, more=True)
    return exchange


@pytest.mark.anyio
async def test_large_bodies_beyond_the_budget_get_503_and_small_ones_do_not() -> None:
    s = service(config=GatewayConfig(max_received_bytes=100_000))
    async with unfinished(s, 160_000) as first, unfinished(s, 160_000) as second:
        body = msgspec.json.decode(await second.read_body())
        assert (second.status, body["error"]["code"]) == (503, "queue_full")
        async with s.post("/tokenize", {"prompt": "small"}) as small:
            assert await small.read_status() == 200
        first.send(b'"}')
        assert await first.read_status() == 200
    async with s.post("/tokenize", {"prompt": "x" * 160_000}) as after:
        assert await after.read_status() == 200


def test_what_a_response_repeats_keeps_nothing_else_of_its_request() -> None:
    tool = b'{"type":"function","name":"f","parameters":{"type":"object"}}'
    format_ = b'{"format":{"type":"json_schema","name":"x","schema":{"type":"object"}}}'
    body = (
        b'{"tools":[%s],"text":%s,"tool_choice":{"type":"function","name":"f"},"input":[{"type":"reasoning","x":"%s"},%s]}'
        % (
            tool,
            format_,
            b"x" * 1_000_000,
            b'{"role":"user","content":"a"}',
        )
    )
    tracemalloc.start()
    try:
        call = parse_responses(body)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [bytes(field) for field in call.echo.tools[0].values()][:2] == [b'"function"', b'"f"']
    assert kept_bytes < 100_000
