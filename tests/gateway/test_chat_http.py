import pytest

from support.fake_engine import answering
from support.gateway_app import service

pytestmark = pytest.mark.anyio


async def test_a_stream_has_role_text_finish_usage_and_done_in_order() -> None:
    s = service(answering("héy", cached=2))
    async with s.chat(stream=True, stream_options={"include_usage": True}) as exchange:
        assert await exchange.read_status() == 200
        assert exchange.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert exchange.headers["cache-control"] == "no-cache"
        assert exchange.headers["x-accel-buffering"] == "no"
        chunks = []
        while (event := await exchange.read_event()) != "[DONE]":
            assert event is not None
            chunks.append(event)
        assert await exchange.read_event() is None
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
