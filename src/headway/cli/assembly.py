"""What of a service is made while its engine loads: the text side of the model, and with it gateway and application.

`service` imports this file on a thread when the engine's process has been started: the imports below take as long as a
small model takes to load.
"""

import time
from pathlib import Path

from starlette.types import ASGIApp

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.events import Hook
from headway.engine.client import EngineClient
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.gateway import Gateway, MetricsPage
from headway.gateway.served import ServedModel
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.gateway.tool_support import find_tool_support
from headway.models.text_side import TextSide, open_text
from headway.streams.log import StreamLog


class Assembly:
    """A gateway that lacks nothing but its engine."""

    def __init__(self, engine_config: EngineConfig, gateway_config: GatewayConfig) -> None:
        self._engine_config = engine_config
        self._gateway_config = gateway_config
        self._text: TextSide = open_text(Path(engine_config.model_path))

    @property
    def text(self) -> TextSide:
        """The model's text side."""
        return self._text

    def finish(
        self,
        engine: EngineClient,
        door: Door,
        streams: StreamLog,
        clock: Clock,
        hook: Hook,
        metrics: MetricsPage,
    ) -> tuple[Gateway, ASGIApp]:
        """Return the gateway of `engine`, which is ready, and the application in front of it; it closes door and streams."""
        config = self._gateway_config
        text = self._text
        served = ServedModel(
            name=self._engine_config.model,
            engine=engine,
            tokenizer=text.tokenizer,
            chat_template=text.chat_template,
            created_s=int(time.time()),
            tool_support=find_tool_support(text.chat_template, text.tokenizer),
            fim=text.fim,
            pooling=self._gateway_config.pooling or text.pooling,
        )
        gateway = Gateway(
            {served.name: served},
            config=self._gateway_config,
            clock=clock,
            wall_time_s=time.time,
            hook=hook,
            metrics=metrics,
            door=door,
            streams=Streams(
                streams,
                clock,
                StreamTerms(grace_s=config.stream_grace_s, keeps_steps=config.streams != "memory"),
                tell=hook,
            ),
        )
        return gateway, create_app(gateway)
