"""Wires one model into a service: engine process, tokenizer, gateway, metrics. What `serve` and `chat` share.

The engine loads in its own process while everything else is imported and built here, so that start-up costs the longer
of the two.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headway.cli.access_file import AccessSettings, open_door
from headway.core.clock import NS_PER_MS, Clock, MonotonicClock
from headway.core.config import EngineConfig
from headway.core.errors import ModelFileError
from headway.core.events import CallEnded, Hook
from headway.core.hooks import also
from headway.engine.client import EngineClient
from headway.engine.frames import LogSettings
from headway.engine.process import ProcessEngineClient
from headway.engine.remote_config import RemoteConfig
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.obs.config import ObsConfig
from headway.obs.metrics import Metrics
from headway.obs.trace_setup import open_tracing
from headway.streams.limits import StreamLimits
from headway.streams.log import StreamLog
from headway.streams.places import open_log

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from headway.cli.assembly import Assembly
    from headway.gateway.gateway import Gateway

LOG_SETUP = "headway.obs.logs:configure"
"""By name: the engine's process sets its logs up with it, and the engine knows no logs."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service whose engine is ready."""

    app: "ASGIApp"
    gateway: "Gateway"
    engine: EngineClient


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a service is to be.

    remote   another server that runs the engine; of `engine` then only the model's text and the queue's limits count
    access   who may call, and how much; None = everybody, without limits
    """

    engine: EngineConfig
    remote: RemoteConfig | None = None
    gateway: GatewayConfig = GatewayConfig()
    obs: ObsConfig = ObsConfig()
    access: AccessSettings | None = None
    log_level: str
    log_json: bool


@asynccontextmanager
async def running_service(settings: ServiceSettings) -> AsyncIterator[Service]:
    """Start the engine, yield the service, end the engine. A remote engine that is not there yet is no error.

    Raises ModelFileError, ConfigError or EngineDied when the engine cannot start, ConfigError where spans cannot be made or
    what `access` names cannot be opened, ConfigError or StreamLogUnavailable where streams cannot be kept as asked for.
    """
    logging.getLogger("asyncio").addFilter(_is_not_about_a_client_that_left)
    clock = MonotonicClock()
    metrics = Metrics(settings.obs.tokens)
    tracing = open_tracing(settings.obs.traces)
    hook: Hook = metrics if tracing is None else also(metrics, CallEnded, tracing.on_call)
    stores = await _open_stores(settings, clock, hook)
    try:
        if settings.remote is None:
            engine, assembly = await _start_own(settings, clock, metrics)
        else:
            engine, assembly = await _start_remote(settings, settings.remote, clock, metrics)
        try:
            gateway, app = assembly.finish(engine, stores.door, stores.streams, clock, hook, metrics.page)
        except BaseException:
            await engine.close()
            raise
    except BaseException:
        await stores.close()
        raise
    try:
        yield Service(app=app, gateway=gateway, engine=engine)
    finally:
        await engine.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


class _Stores(NamedTuple):
    """What is kept outside this process, as far as it is; the gateway closes it."""

    door: Door
    streams: StreamLog

    async def close(self) -> None:
        """Let go of both."""
        await self.streams.close()
        await self.door.close()


async def _open_stores(settings: ServiceSettings, clock: Clock, hook: Hook) -> _Stores:
    """Open what has to be there, before the engine loads: nobody waits for a model to read of a wrong path."""
    door = await open_door(settings.access, clock, hook)
    try:
        streams = await open_log(
            settings.gateway.streams, StreamLimits(), lambda: time.time_ns() // NS_PER_MS
        )
    except BaseException:
        await door.close()
        raise
    return _Stores(door, streams)


async def _start_own(settings: ServiceSettings, clock: Clock, hook: Hook) -> "tuple[EngineClient, Assembly]":
    engine = ProcessEngineClient(
        settings.engine,
        clock,
        hook,
        log=LogSettings(setup=LOG_SETUP, level=settings.log_level, json=settings.log_json),
    )
    try:
        return engine, await _start(engine, settings.engine, settings.gateway)
    except BaseException:
        await engine.close()
        raise


async def _start_remote(
    settings: ServiceSettings, remote: RemoteConfig, clock: Clock, hook: Hook
) -> "tuple[EngineClient, Assembly]":
    """Read the text side first: the remote engine is asked whether its tokens are the same."""
    from headway.cli.assembly import Assembly
    from headway.cli.remote_engine import open_remote_engine

    assembly = await asyncio.to_thread(Assembly, settings.engine, settings.gateway)
    engine = open_remote_engine(remote, settings.engine.scheduler, assembly.text.tokenizer, clock, hook)
    await engine.start()
    return engine, assembly


async def _start(
    engine: EngineClient, engine_config: EngineConfig, gateway_config: GatewayConfig
) -> "Assembly":
    """Start the engine and read the text side meanwhile; whichever fails first ends the other, and its error is raised.

    So a folder without a tokenizer is refused before its weights are packed. A cancellation waits for the engine's end.
    """
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.start())
            assembling = group.create_task(asyncio.to_thread(_assemble, engine_config, gateway_config))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return assembling.result()


def _assemble(engine_config: EngineConfig, gateway_config: GatewayConfig) -> "Assembly":
    from headway.cli.assembly import Assembly

    try:
        return Assembly(engine_config, gateway_config)
    except ModelFileError:
        from headway.models.architectures import open_plan

        open_plan(Path(engine_config.model_path))  # where this fails too, it says more about the model
        raise


def _is_not_about_a_client_that_left(record: logging.LogRecord) -> bool:
    """Drop what event loops warn of when steps that had piled up are written before the loop tells of a lost client."""
    return record.msg != "socket.send() raised exception."
