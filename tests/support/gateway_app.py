"""A gateway over a fake engine, for tests of the HTTP service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.types import ASGIApp

from headway.core.clock import ManualClock
from headway.core.events import Event, RequestEnded
from headway.core.messages import EngineInfo
from headway.core.request import Pooling
from headway.engine.client import EngineClient
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.gateway import Gateway, MetricsPage
from headway.gateway.served import ChatTemplate, ServedModel, Tokenizer
from headway.gateway.streams import Streams
from headway.gateway.tool_support import find_tool_support
from headway.models.text_side import FimTokens
from support.asgi_client import Exchange
from support.byte_text import ByteTokenizer, PlainTemplate
from support.scripted_client import INFO, FakeEngineClient, Script

MODEL = "fake"


@dataclass
class Service:
    """The application and everything a test may want to look at."""

    app: ASGIApp
    gateway: Gateway
    engine: FakeEngineClient
    clock: ManualClock
    events: list[Event] = field(default_factory=list)

    def post(
        self,
        path: str,
        body: Mapping[str, object] | bytes,
        headers: Mapping[str, str] | None = None,
        *,
        complete: bool = True,
        reads: bool = True,
    ) -> Exchange:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return Exchange(self.app, "POST", path, data, headers, complete=complete, reads=reads)

    def chat(self, **fields: object) -> Exchange:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
        return self.post("/v1/chat/completions", body)

    def complete(self, **fields: object) -> Exchange:
        return self.post("/v1/completions", {"model": MODEL, "prompt": "hi", **fields})

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Exchange:
        return Exchange(self.app, "GET", path, headers=headers)

    def delete(self, path: str) -> Exchange:
        return Exchange(self.app, "DELETE", path)

    @property
    def ended(self) -> list[RequestEnded]:
        return [event for event in self.events if isinstance(event, RequestEnded)]


def served(
    engine: EngineClient,
    *,
    name: str = MODEL,
    tokenizer: Tokenizer | None = None,
    chat_template: ChatTemplate | None = None,
    fim: FimTokens | None = None,
    pooling: Pooling | None = None,
) -> ServedModel:
    tokenizer = tokenizer or ByteTokenizer()
    chat_template = chat_template or PlainTemplate()
    return ServedModel(
        name=name,
        engine=engine,
        tokenizer=tokenizer,
        chat_template=chat_template,
        created_s=1_700_000_000,
        tool_support=find_tool_support(chat_template, tokenizer),
        fim=fim,
        pooling=pooling,
    )


def service(
    script: Script | None = None,
    *,
    config: GatewayConfig | None = None,
    tokenizer: Tokenizer | None = None,
    chat_template: ChatTemplate | None = None,
    metrics: MetricsPage | None = None,
    fim: FimTokens | None = None,
    pooling: Pooling | None = None,
    info: EngineInfo = INFO,
    streams: Streams | None = None,
    door: Door | None = None,
) -> Service:
    engine = FakeEngineClient(info, script)
    clock = ManualClock(10_000_000_000)
    events: list[Event] = []
    gateway = Gateway(
        {MODEL: served(engine, tokenizer=tokenizer, chat_template=chat_template, fim=fim, pooling=pooling)},
        config=config or GatewayConfig(),
        clock=clock,
        wall_time_s=lambda: 1_800_000_000.5,
        hook=events.append,
        metrics=metrics,
        streams=streams,
        door=door,
    )
    return Service(create_app(gateway), gateway, engine, clock, events)
