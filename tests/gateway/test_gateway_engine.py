"""The service over the real engine on the fake runner: scenario 1 from the socket's side to the last block."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headway.core.clock import Clock, ManualClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.events import Event, RequestEnded
from headway.core.messages import EngineInfo
from headway.engine.engine import Engine
from headway.engine.inline import InlineEngineClient
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.runner.fake import FakeRunner
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer
from support.gateway_app import MODEL, served

pytestmark = pytest.mark.anyio

NUM_BLOCKS = 64
SETTLE_TURNS = 20
"""More turns of the loop than lie between a step's tokens, or a hang-up, and its last effect."""
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
    info = EngineInfo(
        model=config.model,
        vocab_size=runner.info.vocab_size,
        max_context=runner.info.max_context,
        num_blocks=NUM_BLOCKS,
        block_size=runner.info.block_size,
        system_fingerprint=runner.info.system_fingerprint,
    )
    return Engine(runner, config.scheduler, clock, info)


@dataclass
class Stack:
    gateway: Gateway
    engine: InlineEngineClient
    events: list[Event]

    def post(self, prompt: str, *, stream: bool = True, max_tokens: int = 20, **fields: object) -> Exchange:
        body = {"prompt": prompt, "stream": stream, "max_tokens": max_tokens, "seed": 1, **fields}
        return Exchange(create_app(self.gateway), "POST", "/v1/completions", msgspec.json.encode(body))

    async def step(self, count: int = 1) -> None:
        """Let the gateway react, then make a step, `count` times."""
        for _ in range(count):
            await self.settle()
            self.engine.step()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(SETTLE_TURNS):
            await anyio.lowlevel.checkpoint()

    async def arrive(self, count: int) -> None:
        """Wait until `count` requests are with the engine: each crosses the tokenising thread."""
        while self.engine.num_requests < count:
            await anyio.lowlevel.checkpoint()

    async def text(self, prompt: str) -> str:
        """What a request answers when it is alone."""
        async with self.post(prompt, stream=False) as exchange:
            await self.arrive(1)
            while not exchange.complete:
                await self.step()
                if self.engine.num_requests == 0:
                    break
            body = msgspec.json.decode(await exchange.read_body())
        text = body["choices"][0]["text"]
        assert isinstance(text, str)
        return text

    def assert_idle(self) -> None:
        stats = self.engine.statistics()
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert stats.num_free_blocks == NUM_BLOCKS
        assert self.engine.num_requests == 0
        assert self.gateway.num_active == 0

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.events if isinstance(event, RequestEnded)]


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    clock = ManualClock()
    events: list[Event] = []
    engine = InlineEngineClient(
        EngineConfig(model=MODEL, scheduler=SCHEDULER), clock, events.append, factory=build
    )
    await engine.start()
    gateway = Gateway(
        {MODEL: served(engine, tokenizer=NumberTokenizer())},
        config=GatewayConfig(),
        clock=clock,
        wall_time_s=lambda: 0.0,
        hook=events.append,
    )
    yield Stack(gateway, engine, events)
    gateway.close()
    await engine.close()


async def read_text(exchange: Exchange) -> str:
    text = ""
    while (event := await exchange.read_event()) != "[DONE]":
        assert event is not None
        text += msgspec.json.decode(event)["choices"][0]["text"]
    return text


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


async def test_an_engine_that_dies_ends_streams_with_a_typed_error(stack: Stack) -> None:
    async with stack.post("hello") as exchange:
        await stack.arrive(1)
        await stack.step(3)
        stack.engine.crash()
        body = (await exchange.read_body()).decode()
        assert '"code":"engine_died"' in body.split("\n\n")[-2]
        assert "[DONE]" not in body
    async with Exchange(create_app(stack.gateway), "GET", "/ready") as ready:
        assert await ready.read_status() == 503
    async with stack.post("hello") as refused:
        assert await refused.read_status() == 503
        assert int(refused.headers["retry-after"]) >= 1
