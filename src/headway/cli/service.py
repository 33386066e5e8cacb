"""Wires one model into a service: engine process, tokenizer, gateway, metrics. What `serve` and `chat` share.

The engine loads in its own process while the tokenizer is built here, so that start-up costs the longer of the two.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette

from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig
from headway.engine.client import EngineClient
from headway.engine.frames import LogSettings
from headway.engine.process import ProcessEngineClient
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.gateway.served import ServedModel
from headway.gateway.tool_support import find_tool_support
from headway.models.text_side import open_text
from headway.obs.metrics import Metrics

LOG_SETUP = "headway.obs.logs:configure"


@dataclass(frozen=True, slots=True)
class Service:
    """A service whose engine is ready."""

    app: Starlette
    gateway: Gateway
    engine: EngineClient


@asynccontextmanager
async def running_service(
    engine_config: EngineConfig, gateway_config: GatewayConfig, *, log_level: str, log_json: bool
) -> AsyncIterator[Service]:
    """Start the engine of `engine_config`, yield the service, end the engine.

    Raises ModelFileError, ConfigError or EngineDied when the engine cannot start.
    """
    logging.getLogger("asyncio").addFilter(_is_not_about_a_client_that_left)
    clock = MonotonicClock()
    metrics = Metrics()
    engine = ProcessEngineClient(
        engine_config,
        clock,
        metrics,
        log=LogSettings(setup=LOG_SETUP, level=log_level, json=log_json),
    )
    reading = asyncio.create_task(asyncio.to_thread(open_text, Path(engine_config.model_path)))
    try:
        await engine.start()  # directly: a cancellation must reach it and wait until its process is gone
        text = await reading
    except BaseException:
        if not reading.cancel() and not reading.cancelled():
            reading.exception()  # it may have failed as well, on the same file: heard
        await engine.close()
        raise
    served = ServedModel(
        name=engine_config.model,
        engine=engine,
        tokenizer=text.tokenizer,
        chat_template=text.chat_template,
        created_s=int(time.time()),
        tool_support=find_tool_support(text.chat_template, text.tokenizer),
        fim=text.fim,
        pooling=gateway_config.pooling or text.pooling,
    )
    gateway = Gateway(
        {served.name: served},
        config=gateway_config,
        clock=clock,
        wall_time_s=time.time,
        hook=metrics,
        metrics=metrics.page,
    )
    try:
        yield Service(app=create_app(gateway), gateway=gateway, engine=engine)
    finally:
        await engine.close()


def _is_not_about_a_client_that_left(record: logging.LogRecord) -> bool:
    """Drop what event loops warn of when steps that had piled up are written before the loop tells of a lost client."""
    return record.msg != "socket.send() raised exception."
