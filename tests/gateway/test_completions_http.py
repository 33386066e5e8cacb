from typing import Any

import msgspec
import pytest

from headway.models.text_side import FimTokens
from support.asgi_client import Exchange
from support.gateway_app import service
from support.scripted_client import answering

pytestmark = pytest.mark.anyio


async def events(exchange: Exchange) -> list[dict[str, Any]]:
    found = []
    while (event := await exchange.read_event()) != "[DONE]":
        assert event is not None
        found.append(msgspec.json.decode(event))
    assert await exchange.read_event() is None
    return found


async def test_a_stream() -> None:
    s = service(answering("ab", cached=1))
    async with s.complete(stream=True, stream_options={"include_usage": True}) as exchange:
        first, second, end, usage = await events(exchange)
    assert first == {
        "id": f"cmpl-{exchange.headers['x-request-id']}",
        "object": "text_completion",
        "created": 1_800_000_000,
        "model": "fake",
        "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None}],
        "usage": None,
        "system_fingerprint": "fp_fake",
    }
    assert second["choices"] == [{"index": 0, "text": "b", "logprobs": None, "finish_reason": None}]
    assert end["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


async def test_sixteen_tokens_without_a_limit() -> None:
    s = service(answering("x" * 50, reason="length"))
    async with s.complete() as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert body["choices"] == [{"index": 0, "text": "x" * 16, "logprobs": None, "finish_reason": "length"}]
    assert s.ended[0].outcome == "length"


@pytest.mark.parametrize(
    ("prompt", "token_ids"),
    [
        ("ab", [(97, 98)]),
        ([97, 98], [(97, 98)]),
        (["a", "b"], [(97,), (98,)]),
        ([[97], [98, 99]], [(97,), (98, 99)]),
    ],
)
async def test_every_form_of_prompt_reaches_the_engine_as_token_ids(
    prompt: object, token_ids: list[tuple[int, ...]]
) -> None:
    s = service(answering("x"))
    async with s.complete(prompt=prompt) as exchange:
        assert await exchange.read_status() == 200
        body = msgspec.json.decode(await exchange.read_body())
    assert [request.token_ids for request in s.engine.requests] == token_ids
    assert [choice["index"] for choice in body["choices"]] == list(range(len(token_ids)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, token_ids))


async def test_several_prompts_with_choices_are_numbered_through_and_may_end_in_any_order() -> None:
    s = service()
    async with s.complete(prompt=["a", "b"], n=2, stream=True, seed=5) as exchange:
        await s.engine.wait_requests(2)
        first, second = s.engine.requests
        assert first.sampling.seed == second.sampling.seed == 5  # as if each prompt had come alone
        s.engine.emit(second, b"y", choice=1)
        assert '"index":3,"text":"y"' in str(await exchange.read_event())
        s.engine.finish(second)
        s.engine.emit(first, b"x", choice=0)
        s.engine.finish(first, "length")
        rest = await events(exchange)
    ends = {
        choice["index"]: choice["finish_reason"]
        for event in rest
        for choice in event["choices"]
        if choice["finish_reason"]
    }
    assert ends == {0: "length", 1: "length", 2: "stop", 3: "stop"}
    assert len(s.ended) == 1


async def test_prompts_without_a_seed_get_one_each() -> None:
    s = service(answering("x"))
    async with s.complete(prompt=["a", "a"]) as exchange:
        await exchange.read_body()
    assert len({request.sampling.seed for request in s.engine.requests}) == 2


@pytest.mark.parametrize("prompt", ["hi", [104, 105]])
async def test_echo_begins_with_the_prompt_streaming_or_not(prompt: object) -> None:
    s = service(answering("!"))
    async with s.complete(prompt=prompt, echo=True) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert body["choices"][0]["text"] == "hi!"
    async with s.complete(prompt=prompt, echo=True, stream=True) as exchange:
        chunks = [event["choices"] for event in await events(exchange)]
    assert [choice["text"] for (choice,) in chunks] == ["hi!", ""]


async def test_logprobs_in_openais_legacy_shape() -> None:
    s = service(answering("h€"))
    async with s.complete(logprobs=2) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["h", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"]
    assert logprobs["token_logprobs"] == [-1.04, -2.26, -1.3, -1.72]
    assert logprobs["top_logprobs"][0] == {"h": -1.04, "i": -1.05}
    assert logprobs["text_offset"] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("prompt", "word"),
    [("", "empty"), ([300], "vocabulary"), ([-1], "vocabulary"), ([5, 2**40], "vocabulary")],
)
async def test_prompts_the_model_cannot_take_are_refused(prompt: object, word: str) -> None:
    s = service()
    async with s.complete(prompt=prompt) as exchange:
        assert await exchange.read_status() == 400
        error = msgspec.json.decode(await exchange.read_body())["error"]
    assert error["param"] == "prompt"
    assert word in error["message"]
    assert s.ended[0].outcome == "refused"


async def test_a_suffix_makes_the_model_fill_in_the_middle() -> None:
    s = service(answering("x"), fim=FimTokens(prefix=257, suffix=258, middle=259))
    async with s.complete(prompt=["ab", "c"], suffix="de<end>", echo=True) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert [choice["text"] for choice in body["choices"]] == ["abx", "cx"]
    assert [request.token_ids for request in s.engine.requests] == [
        (257, *prefix, 258, *b"de<end>", 259) for prefix in (b"ab", b"c")
    ]


async def test_a_suffix_for_a_model_that_cannot_fill_in_is_refused() -> None:
    async with service().complete(suffix="d") as exchange:
        assert await exchange.read_status() == 400
        assert msgspec.json.decode(await exchange.read_body())["error"]["param"] == "suffix"


async def test_prefix_and_suffix_together_must_fit_the_context() -> None:
    s = service(fim=FimTokens(prefix=257, suffix=258, middle=259))
    async with s.complete(prompt="a" * 40, suffix="b" * 40) as exchange:
        error = msgspec.json.decode(await exchange.read_body())["error"]
    assert error["code"] == "context_length_exceeded"


async def test_token_ids_where_they_are_asked_for() -> None:
    s = service(answering("ab"))
    async with s.complete(stream=True, return_token_ids=True) as exchange:
        chunks = await events(exchange)
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[97], [98], []]
    async with s.complete(return_token_ids=True) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert body["choices"][0]["token_ids"] == [97, 98]


async def test_log_probabilities_name_tokens_by_their_ids_where_asked_to() -> None:
    s = service(answering("a"))
    async with s.complete(logprobs=1, return_tokens_as_token_ids=True) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["token_id:97"]
    assert all(name.startswith("token_id:") for name in logprobs["top_logprobs"][0])
