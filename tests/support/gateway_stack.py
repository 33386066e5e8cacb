"""The service over a real engine that steps when the test says, all on one event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from anyio.lowlevel import checkpoint

from headway.core.clock import ManualClock
from headway.core.config import EngineConfig
from headway.core.events import Event, RequestEnded
from headway.engine.inline import InlineEngineClient
from headway.engine.service import EngineFactory
from headway.engine.supervisor import Sleep
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.gateway.served import ChatTemplate, Tokenizer
from support.asgi_client import Exchange
from support.gateway_app import served

SETTLE_TURNS = 20
"""More turns of the loop than lie between a step's tokens, or a hang-up, and its last effect."""


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
            await checkpoint()

    async def arrive(self, count: int) -> None:
        """Wait until `count` requests are with the engine: each crosses the tokenising thread."""
        while self.engine.num_requests < count:
            await checkpoint()

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
        assert stats.num_free_blocks == stats.num_blocks
        assert self.engine.num_requests == 0
        assert self.gateway.num_active == 0

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.events if isinstance(event, RequestEnded)]


async def read_text(exchange: Exchange) -> str:
    text = ""
    while (event := await exchange.read_event()) != "[DONE]":
        assert event is not None
        text += msgspec.json.decode(event)["choices"][0]["text"]
    return text


@asynccontextmanager
async def open_stack(
    config: EngineConfig,
    factory: EngineFactory,
    tokenizer: Tokenizer,
    chat_template: ChatTemplate | None = None,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[Stack]:
    """Start the engine, yield the service, end both."""
    clock = ManualClock()
    events: list[Event] = []
    engine = InlineEngineClient(config, clock, events.append, factory=factory, sleep=sleep)
    await engine.start()
    gateway = Gateway(
        {config.model: served(engine, name=config.model, tokenizer=tokenizer, chat_template=chat_template)},
        config=GatewayConfig(),
        clock=clock,
        wall_time_s=lambda: 0.0,
        hook=events.append,
    )
    yield Stack(gateway, engine, events)
    gateway.close()
    await engine.close()
