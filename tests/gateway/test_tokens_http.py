"""What a model makes of a text, and back, over HTTP."""

import msgspec
import pytest

from headway.gateway.config import GatewayConfig
from support.gateway_app import Service, service

pytestmark = pytest.mark.anyio


async def answer(s: Service, path: str, fields: dict[str, object]) -> tuple[int | None, dict[str, object]]:
    async with s.post(path, fields) as exchange:
        body: dict[str, object] = msgspec.json.decode(await exchange.read_body())
        return exchange.status, body


async def test_a_text_becomes_ids() -> None:
    status, body = await answer(service(), "/tokenize", {"model": "fake", "prompt": "hé"})
    assert status == 200
    assert body == {"count": 3, "max_model_len": 64, "tokens": [104, 195, 169], "token_strs": None}


async def test_token_strings_on_request() -> None:
    _, body = await answer(service(), "/tokenize", {"prompt": "hé", "return_token_strs": True})
    assert body["token_strs"] == ["h", "\ufffd", "\ufffd"]


async def test_a_conversation_is_rendered_first() -> None:
    messages = [{"role": "user", "content": "hi"}]
    _, body = await answer(service(), "/tokenize", {"messages": messages})
    assert bytes(msgspec.convert(body["tokens"], list[int])) == b"u:hi\n"


async def test_a_text_of_any_length_is_taken() -> None:
    _, body = await answer(service(), "/tokenize", {"prompt": "x" * 1000})
    assert body["count"] == 1000


async def test_ids_become_text() -> None:
    status, body = await answer(service(), "/detokenize", {"model": "fake", "tokens": [104, 105, 256]})
    assert (status, body) == (200, {"prompt": "hi<end>"})


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
        ("/tokenize", {"prompt": 7}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt"),
        ("/tokenize", {"prompt": "a", "content": "b"}, "content"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [300]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [0] * 1_000_001}, "tokens"),
    ],
)
async def test_a_mistake_is_named(path: str, fields: dict[str, object], param: str) -> None:
    status, body = await answer(service(), path, fields)
    assert status == 400
    error = body["error"]
    assert isinstance(error, dict)
    assert error["param"] == param


async def test_a_large_body_is_parsed_where_prompts_are_tokenised() -> None:
    """There it holds up no stream, and is refused if too many wait."""
    s = service(config=GatewayConfig(max_pending_prompts=0))
    for path in ("/tokenize", "/v1/chat/completions"):
        async with s.post(path, b"x" * 300_000) as exchange:
            body = msgspec.json.decode(await exchange.read_body())
            assert (exchange.status, body["error"]["code"]) == (503, "queue_full")
        async with s.post(path, b"x") as exchange:
            assert await exchange.read_status() == 400
    status, body = await answer(service(), "/tokenize", {"prompt": "x" * 300_000})
    assert (status, body["count"]) == (200, 300_000)


async def test_a_client_that_leaves_while_its_body_is_parsed_is_forgotten() -> None:
    s = service()
    exchange = s.post("/v1/completions", {"prompt": "x" * 300_000})
    async with exchange:
        exchange.disconnect()
    assert s.gateway.prompt_worker.num_pending <= 1
    assert not s.ended
