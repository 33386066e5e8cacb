from collections.abc import Awaitable
from dataclasses import replace

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from headway.models.chat_template import ChatTemplate
from support.asgi_client import Exchange
from support.byte_text import EOS_ID
from support.gateway_app import Service, service
from support.scripted_client import answering

pytestmark = pytest.mark.anyio


async def events(exchange: Exchange) -> list[str]:
    """Every event up to [DONE], which must be last."""
    found = []
    while (event := await exchange.read_event()) is not None:
        found.append(event)
    assert found.pop() == "[DONE]"
    return found


async def streamed(s: Service, **fields: object) -> tuple[str, str, dict[str, object] | None]:
    """Text, finish reason and usage of one streamed choice."""
    text, reason, usage = "", "", None
    async with s.chat(stream=True, stream_options={"include_usage": True}, **fields) as exchange:
        for event in map(msgspec.json.decode, await events(exchange)):
            if not event["choices"]:
                usage = event["usage"]
            for choice in event["choices"]:
                text += choice["delta"].get("content", "")
                reason = choice["finish_reason"] or reason
    return text, reason, usage


async def whole(s: Service, **fields: object) -> tuple[str, str, dict[str, object]]:
    async with s.chat(**fields) as exchange:
        assert await exchange.read_status() == 200
        body = msgspec.json.decode(await exchange.read_body())
    (choice,) = body["choices"]
    return choice["message"]["content"], choice["finish_reason"], body["usage"]


async def test_a_stream_has_role_text_finish_usage_and_done_in_order() -> None:
    s = service(answering("héy", cached=2))
    async with s.chat(stream=True, stream_options={"include_usage": True}) as exchange:
        assert await exchange.read_status() == 200
        assert exchange.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert exchange.headers["cache-control"] == "no-cache"
        assert exchange.headers["x-accel-buffering"] == "no"
        chunks = await events(exchange)
    request_id = exchange.headers["x-request-id"]
    head = (
        f'{{"id":"chatcmpl-{request_id}","object":"chat.completion.chunk","created":1800000000,"model":"fake"'
    )
    tail = '"usage":null,"system_fingerprint":"fp_fake"}'

    def chunk(delta: str, reason: str = "null") -> str:
        choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{reason}}}'
        return f'{head},"choices":[{choice}],{tail}'

    usage = (
        '"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9,'
        '"prompt_tokens_details":{"cached_tokens":2}}'
    )
    assert chunks == [
        chunk('{"role":"assistant","content":"","refusal":null}'),
        chunk('{"content":"h"}'),
        chunk('{"content":"é"}'),
        chunk('{"content":"y"}'),
        chunk("{}", '"stop"'),
        f'{head},"choices":[],{usage},"system_fingerprint":"fp_fake"}}',
    ]


async def test_a_stream_without_usage_does_not_mention_it() -> None:
    s = service(answering("hey"))
    async with s.chat(stream=True) as exchange:
        assert all("usage" not in event for event in await events(exchange))


async def test_the_end_of_a_stream_leaves_in_one_write_with_its_reason() -> None:
    s = service(answering("hey"))
    writes: list[bytes] = []

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        def note(message: Message) -> Awaitable[None]:
            writes.append(message.get("body", b""))
            return send(message)

        await s.app(scope, receive, note)

    async with replace(s, app=noted).chat(stream=True) as exchange:
        assert len(await events(exchange)) == 5
    last = writes[-1]
    assert last.count(b'"finish_reason":"stop"') == 1
    assert last.endswith(b"data: [DONE]\n\n")


async def test_a_whole_response() -> None:
    s = service(answering("héy", cached=2, reason="length"))
    async with s.chat() as exchange:
        assert await exchange.read_status() == 200
        assert exchange.headers["content-type"] == "application/json"
        body = await exchange.read_json()
    assert body == {
        "id": f"chatcmpl-{exchange.headers['x-request-id']}",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "héy", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 4,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


async def test_the_first_token_leaves_before_the_second_is_there() -> None:
    s = service()
    async with s.chat(stream=True) as exchange:
        await s.engine.wait_requests(1)
        assert exchange.status is None  # no headers before the engine has done something: it may still refuse
        (request,) = s.engine.requests
        s.engine.emit(request, b"a")
        role, text = await exchange.read_json_event(), await exchange.read_json_event()
        assert '"role":"assistant"' in msgspec.json.encode(role).decode()
        assert '"content":"a"' in msgspec.json.encode(text).decode()
        s.engine.finish(request)


@pytest.mark.parametrize("per_step", [1, 2, 7])
@pytest.mark.parametrize("stop", [None, "END", ["END", "b"], ["zzz"], ["dE"]])
async def test_streaming_or_not_gives_the_same_text_reason_and_usage(per_step: int, stop: object) -> None:
    s = service(answering("abcdENDef", per_step=per_step, reason="length"))
    as_stream, as_whole = await streamed(s, stop=stop), await whole(s, stop=stop)
    assert as_stream == as_whole
    expected = {
        "END": ("abcd", "stop", 7),
        str(["END", "b"]): ("a", "stop", 2),
        str(["dE"]): ("abc", "stop", 5),
    }.get(str(stop), ("abcdENDef", "length", 9))
    assert as_whole[:2] == expected[:2]
    assert as_whole[2]["completion_tokens"] == expected[2]


async def test_a_stop_string_cancels_the_choice_in_the_engine_and_ends_it_at_once() -> None:
    s = service()
    async with s.chat(stream=True, stop="END", n=2) as exchange:
        await s.engine.wait_requests(1)
        (request,) = s.engine.requests
        s.engine.emit(request, b"xEND", choice=1)
        await exchange.read_event()
        assert '"index":1,"delta":{"content":"x"}' in str(await exchange.read_event())
        assert '"index":1,"delta":{},"logprobs":null,"finish_reason":"stop"' in str(
            await exchange.read_event()
        )
        assert s.engine.cancels == [(request.request_id, 1, "stop")]
        s.engine.emit(request, b"y")
        s.engine.finish(request, "length")
        rest = await events(exchange)
    assert '"index":0,"delta":{},"logprobs":null,"finish_reason":"length"' in rest[-1]
    assert s.ended[0].outcome == "stop"


async def test_choices_have_their_index_in_streams_and_responses() -> None:
    s = service(answering("ab"))
    async with s.chat(n=3, stream=True) as exchange:
        chunks = [msgspec.json.decode(event)["choices"][0] for event in await events(exchange)]
    for index in range(3):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert [chunk["delta"].get("content") for chunk in own[1:]] == ["a", "b", None]
        assert [chunk["finish_reason"] for chunk in own] == [None, None, None, "stop"]
    async with s.chat(n=3) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["ab", "ab", "ab"]
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["prompt_tokens"] == 5


async def test_logprobs_in_openais_chat_shape() -> None:
    s = service(answering("h€"))
    async with s.chat(logprobs=True, top_logprobs=2) as exchange:
        body = msgspec.json.decode(await exchange.read_body())
    content = body["choices"][0]["logprobs"]["content"]
    assert content[0] == {
        "token": "h",
        "logprob": -1.04,
        "bytes": [104],
        "top_logprobs": [
            {"token": "h", "logprob": -1.04, "bytes": [104]},
            {"token": "i", "logprob": -1.05, "bytes": [105]},
        ],
    }
    assert [token["token"] for token in content[1:]] == ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac"]
    async with s.chat(logprobs=True, top_logprobs=2, stream=True) as exchange:
        choices = [msgspec.json.decode(event)["choices"][0] for event in await events(exchange)]
    with_text = [choice for choice in choices if choice["delta"].get("content")]
    assert [len(choice["logprobs"]["content"]) for choice in with_text] == [1, 3]
    assert [token for choice in with_text for token in choice["logprobs"]["content"]] == content


async def test_the_engine_gets_what_was_asked_for() -> None:
    s = service(answering("x"))
    fields = {"temperature": 0.5, "seed": 7, "max_tokens": 9, "stop_token_ids": [3], "n": 2}
    async with s.chat(**fields) as exchange:
        await exchange.read_body()
    (request,) = s.engine.requests
    assert request.token_ids == tuple(b"u:hi\n")
    assert (request.sampling.temperature, request.sampling.seed) == (0.5, 7)
    assert (request.max_tokens, request.n, request.stop_token_ids) == (9, 2, (3, EOS_ID))
    assert request.arrival_ns == s.clock.now_ns()


async def test_ignore_eos_takes_the_models_own_ends_away() -> None:
    s = service(answering("x"))
    async with s.chat(ignore_eos=True) as exchange:
        await exchange.read_body()
    assert s.engine.requests[0].stop_token_ids == ()


async def test_a_missing_seed_is_drawn_anew_for_every_request() -> None:
    s = service(answering("x"))
    for _ in range(3):
        async with s.chat() as exchange:
            await exchange.read_body()
    assert len({request.sampling.seed for request in s.engine.requests}) == 3


@pytest.mark.parametrize(("asked", "expected"), [(None, 59), (59, 59), (4, 4)])
async def test_without_a_limit_an_answer_may_fill_the_context(asked: int | None, expected: int) -> None:
    s = service(answering("x"))
    async with s.chat(max_tokens=asked) as exchange:
        await exchange.read_body()
    assert s.engine.requests[0].max_tokens == expected


async def test_names_for_the_template_reach_it() -> None:
    source = "{{ messages[0].content }}{% if not (enable_thinking | default(true)) %} (quick){% endif %}"
    s = service(answering("x"), chat_template=ChatTemplate(source))
    for names in ({}, {"enable_thinking": False}):
        await whole(s, chat_template_kwargs=names)
    assert [bytes(request.token_ids) for request in s.engine.requests] == [b"hi", b"hi (quick)"]
