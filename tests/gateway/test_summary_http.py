"""A conversation's summary over HTTP: what the engine is asked, what comes back, and that its prefix is cached."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from headway.core.config import EngineConfig, SchedulerConfig
from headway.engine.build import build_engine
from headway.engine.service import EngineFactory
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.served import ChatTemplate, Tokenizer
from headway.models.fetch import resolve_model
from headway.models.text_side import open_text
from headway.wire.summary import SUMMARY_REQUEST
from support import served_fake
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer, PlainTemplate
from support.gateway_app import MODEL, service
from support.gateway_stack import Stack, open_stack
from support.scripted_client import INFO, answering
from support.tool_service import tool_service
from support.tool_text import NOW

pytestmark = pytest.mark.anyio

ROOMY = msgspec.structs.replace(INFO, max_context=4096, num_blocks=256)
MESSAGES = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Why is the parser slow?"},
    {"role": "assistant", "content": "It copies each line."},
]


async def test_a_line_comes_back_with_its_usage() -> None:
    s = service(answering(list(b" Parser copies lines; fix open. ")), info=ROOMY)
    async with s.post("/v1/summary", {"model": MODEL, "messages": MESSAGES}) as exchange:
        answer = await exchange.read_json()
    assert exchange.status == 200
    assert (answer["object"], answer["model"]) == ("summary", MODEL)
    assert answer["summary"] == "Parser copies lines; fix open."
    (request,) = s.engine.requests
    assert answer["usage"]["prompt_tokens"] == len(request.token_ids)  # type: ignore[index]
    prompt = bytes(request.token_ids).decode()
    assert prompt.startswith(
        "s:You help.\nu:Why is the parser slow?\na:It copies each line.\nu:In one sentence"
    )
    assert prompt.endswith(SUMMARY_REQUEST + "\n")


async def test_it_is_asked_for_in_class_low_whatever_the_headers_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    s = service(answering(b"x"), info=ROOMY, config=GatewayConfig(trust_headers=True))
    headers = {"x-headway-class": "high", "x-headway-tenant": "a", "x-headway-session": "s"}
    async with s.post("/v1/summary", {"messages": MESSAGES}, headers) as exchange:
        await exchange.read_json()
    (request,) = s.engine.requests
    assert (request.service_class, request.tenant, request.session) == ("low", "a", "s")
    assert s.ended[0].service_class == "low"
    assert caplog.records[-1].__dict__["class"] == "low"
    assert (request.max_tokens, request.sampling.temperature) == (64, 0)


class WordTokenizer(ByteTokenizer):
    """Every token of an answer is a word."""

    def token_bytes(self, token_id: int) -> bytes:
        del token_id
        return b"word "


async def test_a_long_answer_is_cut_behind_a_word() -> None:
    s = service(answering(b"w" * 40), info=ROOMY, tokenizer=WordTokenizer())
    async with s.post("/v1/summary", {"messages": MESSAGES}) as exchange:
        line = str((await exchange.read_json())["summary"])
    assert line == "word " * 24 + "word…"


async def test_a_call_instead_of_a_line_is_no_summary() -> None:
    s = tool_service('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    async with s.post("/v1/summary", {"messages": MESSAGES, "tools": [NOW]}) as exchange:
        assert (await exchange.read_json())["summary"] == ""


async def test_a_mistake_is_refused_by_name() -> None:
    async with service().post("/v1/summary", {"messages": MESSAGES, "max_tokens": 9}) as exchange:
        answer = await exchange.read_json()
    assert exchange.status == 400
    assert answer["error"]["param"] == "max_tokens"  # type: ignore[index]


async def post(stack: Stack, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    async with Exchange(create_app(stack.gateway), "POST", path, msgspec.json.encode(body)) as exchange:
        await stack.arrive(1)
        while stack.engine.num_requests:
            await stack.step()
        return await exchange.read_json()


async def cached_of_summary(stack: Stack, messages: Sequence[Mapping[str, object]]) -> tuple[int, int]:
    """Chat, then sum up; return how many tokens the chat's prompt had and how many of them the summary found."""
    chat = await post(stack, "/v1/chat/completions", {"messages": messages, "max_tokens": 8, "seed": 1})
    told = [*messages, chat["choices"][0]["message"]]
    summary = await post(stack, "/v1/summary", {"messages": told})
    usage = summary["usage"]
    assert usage["prompt_tokens"] > chat["usage"]["prompt_tokens"]
    return chat["usage"]["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def config(**fields: Any) -> EngineConfig:
    return EngineConfig(model=MODEL, scheduler=SchedulerConfig(max_prefill_tokens=256), **fields)


def on_fake() -> tuple[EngineConfig, EngineFactory, Tokenizer, ChatTemplate]:
    return config(), served_fake.build, ByteTokenizer(), PlainTemplate()


def on_demo_model() -> tuple[EngineConfig, EngineFactory, Tokenizer, ChatTemplate]:
    path = resolve_model("smollm2")
    text = open_text(path)
    assert text.chat_template is not None
    settings = config(model_path=str(path), threads=1, kv_bytes=64 * 1024 * 1024)
    return settings, build_engine, text.tokenizer, text.chat_template


@pytest.fixture(
    params=[
        pytest.param(on_fake, id="fake"),
        pytest.param(on_demo_model, id="demo", marks=[pytest.mark.native, pytest.mark.model]),
    ]
)
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    async with open_stack(*request.param()) as stack:
        yield stack


async def test_all_of_the_chats_prompt_comes_from_the_cache(stack: Stack) -> None:
    question = "Why is this slow?\n" + "\n".join(f"line {number} = parse({number})" for number in range(20))
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": question}]
    num_prompt, num_cached = await cached_of_summary(stack, messages)
    block_size = stack.gateway.models[MODEL].engine.info.block_size
    suffix = 4  # where the answer begins is part of the prompt, and of the conversation's next one
    assert num_cached >= (num_prompt - suffix) // block_size * block_size > 100
    stack.assert_idle()
