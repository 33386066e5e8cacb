"""Scenario 1 on the real thing: the demo model, its tokenizer and template, the native runner."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from headway.core.config import EngineConfig, SchedulerConfig
from headway.engine.build import build_engine
from headway.gateway.app import create_app
from headway.models.fetch import resolve_model
from headway.models.text_side import open_text
from support.asgi_client import Exchange
from support.gateway_stack import Stack, open_stack, read_text

pytestmark = [pytest.mark.anyio, pytest.mark.native, pytest.mark.model]

CODE = "def quicksort(items: list[int]) -> list[int]:\n    "


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    path = resolve_model("smollm2")
    text = open_text(path)
    config = EngineConfig(
        model="smollm2",
        model_path=str(path),
        threads=1,
        kv_bytes=64 * 1024 * 1024,
        scheduler=SchedulerConfig(max_prefill_tokens=32),
    )
    async with open_stack(config, build_engine, text.tokenizer, text.chat_template) as stack:
        yield stack


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_leaves_and_the_others_bits_stay(stack: Stack, stream: bool) -> None:
    alone = await stack.text(CODE)
    async with stack.post(CODE) as stays:
        await stack.arrive(1)
        leaver = stack.post("Tell me a story about a very long river.", stream=stream, max_tokens=200)
        await leaver.__aenter__()
        await stack.arrive(2)
        await stack.step(6)
        leaver.disconnect()
        await stack.step(2)
        await leaver.wait_ended()
        assert stack.engine.num_requests == 1
        assert stack.engine.statistics().num_running == 1
        await stack.step(25)
        assert await read_text(stays) == alone
    stack.assert_idle()
    assert stack.outcomes == ["length", "cancelled", "length"]


async def test_a_chat_is_the_same_streamed_and_whole_and_its_prefix_is_cached(stack: Stack) -> None:
    texts, cached = [], []
    for stream in (False, True):
        body = {
            "messages": [{"role": "user", "content": "What is gravity?"}],
            "stream": stream,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": 8,
        }
        app = create_app(stack.gateway)
        async with Exchange(app, "POST", "/v1/chat/completions", msgspec.json.encode(body)) as exchange:
            await stack.arrive(1)
            await stack.step(16)
            data = (await exchange.read_body()).decode()
        if stream:
            chunks = [
                msgspec.json.decode(event.removeprefix("data: "))
                for event in data.split("\n\n")
                if event.startswith("data: {")
            ]
            texts.append("".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]))
            cached.append(chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"])
        else:
            whole = msgspec.json.decode(data)
            texts.append(whole["choices"][0]["message"]["content"])
            cached.append(whole["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert texts[0] == texts[1]
    assert texts[0].startswith("Gravity is")
    assert cached[0] == 0
    assert cached[1] >= 16
    stack.assert_idle()
