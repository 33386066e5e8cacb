"""The service over the real engine on the fake runner: scenario 1 from the socket's side to the last block."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from headway.core.clock import Clock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.engine.engine import Engine, engine_info
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.runner.fake import FakeRunner
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer
from support.gateway_app import MODEL
from support.gateway_stack import Stack, open_stack, read_text

pytestmark = pytest.mark.anyio

NUM_BLOCKS = 64
SCHEDULER = SchedulerConfig(max_num_seqs=2, max_prefill_tokens=32)


class NumberTokenizer(ByteTokenizer):
    """Bytes in, token numbers out: every token of the fake runner is visible."""

    eos_ids: tuple[int, ...] = ()

    def token_bytes(self, token_id: int) -> bytes:
        return b"<%d>" % token_id

    def is_special(self, token_id: int) -> bool:
        del token_id
        return False


def build(config: EngineConfig, clock: Clock) -> Engine:
    runner = FakeRunner(num_blocks=NUM_BLOCKS, max_context=512)
    info = engine_info(config.model, runner)
    return Engine(runner, config.scheduler, clock, info)


@pytest.fixture
def restarts() -> asyncio.Event:
    """Set while an engine that ended may be replaced."""
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
async def stack(restarts: asyncio.Event) -> AsyncIterator[Stack]:
    async def back_off(seconds: float) -> None:
        del seconds
        await restarts.wait()

    config = EngineConfig(model=MODEL, scheduler=SCHEDULER)
    async with open_stack(config, build, NumberTokenizer(), sleep=back_off) as stack:
        yield stack


async def test_a_stream_and_a_whole_response_have_the_engines_tokens(stack: Stack) -> None:
    alone = await stack.text("hello")
    assert alone.count("<") == 20
    async with stack.post("hello") as exchange:
        await stack.arrive(1)
        await stack.step(25)
        assert await read_text(exchange) == alone
    stack.assert_idle()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("stage", "num_steps", "prompt"),
    [("queued", 1, "late"), ("prefill", 2, "p" * 200), ("mid-stream", 5, "short")],
)
async def test_a_client_leaves_and_the_others_bits_stay(
    stack: Stack, stage: str, num_steps: int, prompt: str, stream: bool
) -> None:
    texts = [await stack.text("first"), await stack.text("second")]
    others = ["first", "second"] if stage == "queued" else ["first"]
    exchanges = [stack.post(other) for other in others]
    leaver = stack.post(prompt, stream=stream, max_tokens=100)
    for index, exchange in enumerate([*exchanges, leaver]):
        await exchange.__aenter__()
        await stack.arrive(index + 1)
    await stack.step(num_steps)
    before = stack.engine.statistics()
    assert before.num_waiting == (1 if stage == "queued" else 0)
    leaver.disconnect()
    await stack.step(2)
    await leaver.wait_ended()
    assert stack.engine.num_requests == len(others)
    assert stack.engine.statistics().num_running == len(others)
    assert stack.outcomes[-1] == "cancelled"
    await stack.step(25)
    for exchange, text in zip(exchanges, texts, strict=False):
        assert await read_text(exchange) == text
        await exchange.__aexit__(None, None, None)
    stack.assert_idle()


async def test_a_stop_string_frees_the_engine_and_counts_the_same_streaming_or_not(stack: Stack) -> None:
    text = await stack.text("hello")
    stop = text[text.index("<", 20) :][:6]
    counts = []
    for stream in (True, False):
        exchange = stack.post("hello", stream=stream, stop=stop, stream_options={"include_usage": True})
        async with exchange:
            await stack.arrive(1)
            await stack.step(25)
            body = (await exchange.read_body()).decode()
        last = body.split("\n\n")[-3].removeprefix("data: ") if stream else body
        counts.append(msgspec.json.decode(last)["usage"]["completion_tokens"])
        assert stop not in body
        stack.assert_idle()
    assert counts[0] == counts[1] < 20


async def test_a_shared_prefix_is_reported_as_cached(stack: Stack) -> None:
    await stack.text("p" * 100)
    async with stack.post("p" * 100 + "?", stream=False) as exchange:
        await stack.arrive(1)
        await stack.step(25)
        usage = msgspec.json.decode(await exchange.read_body())["usage"]
    assert usage["prompt_tokens"] == 101
    assert usage["prompt_tokens_details"]["cached_tokens"] == 96


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("num_steps", [0, 1, 3, 12])
async def test_an_answer_goes_on_with_the_next_engine(stack: Stack, num_steps: int, stream: bool) -> None:
    def post() -> Exchange:
        options = {"include_usage": True} if stream else None
        return stack.post("hello", stream=stream, n=3, temperature=0.8, stream_options=options)

    async def answer(exchange: Exchange) -> tuple[dict[int, str], dict[int, str], object]:
        """The text and the end of each choice, and the usage."""
        while stack.gateway.num_active:
            await stack.step()
        texts, ends, usage = {0: "", 1: "", 2: ""}, {}, None
        body = (await exchange.read_body()).decode()
        for event in body.split("data: ") if stream else [body]:
            if not event.startswith("{"):
                continue
            fields = msgspec.json.decode(event)
            usage = fields["usage"] or usage
            for choice in fields["choices"]:
                texts[choice["index"]] += choice["text"]
                if choice["finish_reason"]:
                    ends[choice["index"]] = choice["finish_reason"]
        assert "[DONE]" in body or not stream
        return texts, ends, usage

    async with post() as exchange:
        await stack.arrive(1)
        expected = await answer(exchange)
    async with post() as exchange:
        await stack.arrive(1)
        await stack.step(num_steps)
        stack.engine.crash()
        await stack.arrive(3)  # one for each choice
        assert await answer(exchange) == expected
    assert len(set(expected[0].values())) == 3
    assert stack.outcomes == ["length", "length"]
    stack.assert_idle()


async def test_a_request_that_ends_every_engine_is_given_up(stack: Stack) -> None:
    async with stack.post("hello") as exchange:
        await stack.arrive(1)
        await stack.step(3)
        for _ in range(3):
            await stack.arrive(1)
            stack.engine.crash()
        body = (await exchange.read_body()).decode()
    assert '"code":"engine_died"' in body.split("\n\n")[-2]
    assert "[DONE]" not in body
    assert stack.outcomes == ["error"]
    stack.assert_idle()


async def test_a_prompt_that_ends_engines_takes_no_answer_with_it_that_had_begun(stack: Stack) -> None:
    expected = await stack.text("good")
    async with stack.post("good") as good:
        await stack.arrive(1)
        await stack.step(3)
        async with stack.post("bad", stream=False) as bad:
            for _ in range(2):
                await stack.arrive(2)
                stack.engine.crash()
            assert await bad.read_status() == 500
        await stack.arrive(1)
        await stack.step(25)
        assert await read_text(good) == expected
    assert stack.outcomes == ["length", "error", "length"]
    stack.assert_idle()


async def test_a_client_that_leaves_while_no_engine_is_there_is_forgotten(
    stack: Stack, restarts: asyncio.Event
) -> None:
    restarts.clear()
    async with stack.post("hello") as exchange:
        await stack.arrive(1)
        await stack.step(3)
        stack.engine.crash()
        exchange.disconnect()
        await exchange.wait_ended()
    assert stack.outcomes == ["cancelled"]


async def test_while_an_engine_restarts_nothing_new_is_taken(stack: Stack, restarts: asyncio.Event) -> None:
    restarts.clear()
    stack.engine.crash()
    async with Exchange(create_app(stack.gateway), "GET", "/ready") as ready:
        assert await ready.read_status() == 503
    async with stack.post("hello") as refused:
        assert await refused.read_status() == 503
        assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("share_prefixes", [False, True])
async def test_what_one_tenant_has_asked_makes_no_other_faster(stack: Stack, share_prefixes: bool) -> None:
    stack.gateway.config = GatewayConfig(trust_headers=True, share_prefixes=share_prefixes)
    prompt = "a system prompt of a few blocks, known to whoever guesses it"

    async def cached_tokens(tenant: str) -> int:
        body = msgspec.json.encode({"prompt": prompt, "max_tokens": 1})
        headers = {"x-headway-tenant": tenant}
        async with Exchange(create_app(stack.gateway), "POST", "/v1/completions", body, headers) as exchange:
            await stack.arrive(1)
            while stack.engine.num_requests:
                await stack.step()
            usage = msgspec.json.decode(await exchange.read_body())["usage"]
        cached: int = usage["prompt_tokens_details"]["cached_tokens"]
        return cached

    assert await cached_tokens("a") == 0
    assert await cached_tokens("a") == 48  # all full blocks but the last token's
    assert await cached_tokens("b") == (48 if share_prefixes else 0)
