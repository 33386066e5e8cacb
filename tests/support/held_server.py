"""A gateway on a real socket over an engine that gives only what the test lets go."""

import asyncio
import queue
from collections.abc import Iterator
from contextlib import contextmanager

from headway.core.clock import MonotonicClock
from headway.core.request import Request
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from support.gateway_app import Service, service
from support.live_server import live_server
from support.scripted_client import Batch

LIMIT_S = 60.0


class HeldServer:
    """`port`: where it listens. One request at a time; `wait_request` before the others."""

    def __init__(self) -> None:
        self.port = 0
        self._asked: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, Request]] = queue.SimpleQueue()
        self._service: Service | None = None

    def wait_request(self) -> None:
        """Wait until the engine has a request."""
        self._loop, self._request = self._asked.get(timeout=LIMIT_S)

    def emit(self, text: bytes) -> None:
        """Let the engine make a step that brings `text`."""
        assert self._service is not None
        self._loop.call_soon_threadsafe(self._service.engine.emit, self._request, list(text))

    def finish(self) -> None:
        """Let the answer end."""
        assert self._service is not None
        self._loop.call_soon_threadsafe(self._service.engine.finish, self._request)

    def script(self, request: Request) -> Iterator[Batch]:
        """Note the request; nothing comes by itself."""
        self._asked.put((asyncio.get_running_loop(), request))
        return iter(())

    def serve_with(self, made: Service) -> None:
        """What serves."""
        self._service = made


@contextmanager
def held_server(ping_s: float = 1000.0) -> Iterator[HeldServer]:
    """Serve; `ping_s` as in `Streams`."""
    held = HeldServer()
    log = MemoryLog(StreamLimits(), lambda: 1_800_000_000_000)
    streams = Streams(log, MonotonicClock(), StreamTerms(), ping_s=ping_s)
    made = service(held.script, streams=streams)
    held.serve_with(made)
    with live_server(made.app) as (_, held.port):
        yield held
