"""Listens, serves one model over HTTP, and stops as signals ask.

While the model loads, SIGTERM or SIGINT ends the process (exit code 128 + its number). Once it serves, the first one
drains: new requests are refused with 503, running ones finish within a bound, then the exit code is 0. A second one stops
at once. The handlers are there from the beginning: as process 1 of a container a signal without one has no effect.
"""

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
import uvloop

from headway.cli.http_protocol import BoundedHttpProtocol, HttpLimits
from headway.cli.service import Service, ServiceSettings, running_service
from headway.cli.socket_protocol import SocketProtocol
from headway.core.errors import ConfigError

logger = logging.getLogger(__name__)

_LAST_WORDS_S = 2
"""After the engine stopped, cut-off streams get this long to send their error."""
_BACKLOG = 2048
"""Connections that may wait to be accepted: uvicorn's default."""
MAX_SOCKET_MESSAGE_BYTES = 4096
"""Clients acknowledge, no more."""
_OWN_DESCRIPTORS = 64
"""Kept for what the process itself opens: about 20, and the connections being refused."""


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything slow happens, so that a port in use is told at once; raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        raise _not_ours(host, port, error) from error
    return listener


def listen(listener: socket.socket, host: str) -> None:
    """Take connections. Raises ConfigError where somebody else has begun to, who took the address at the same time."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _not_ours(host, listener.getsockname()[1], error) from error


def _not_ours(host: str, port: int, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or "not a host's name"
    return ConfigError(
        f"Cannot listen on {host} port {port} ({reason}); choose another address with --host and --port."
    )


def serve(
    listener: socket.socket,
    host: str,
    settings: ServiceSettings,
    *,
    drain_timeout_s: float,
) -> int:
    """Serve on `listener` until stopped and return the exit code; `host` is what the user called the address.

    Raises HeadwayError when the engine cannot start.
    """

    async def run() -> int:
        task = asyncio.current_task()
        assert task is not None
        with StopSignals(lambda _: task.cancel()) as signals:
            try:
                async with running_service(settings) as service:
                    server = DrainingServer(uvicorn_config(service), service, drain_timeout_s)
                    signals.callback = server.stop_nowait
                    listen(listener, host)
                    _announce(listener, settings.engine.model, host, asks=settings.access is not None)
                    gc.freeze()  # what start-up made stays; collections would look at it in the middle of streams
                    await server.serve(sockets=[listener])
            except asyncio.CancelledError:
                if signals.first is None:
                    raise
                logger.info("%s: stopped before the model was loaded", signals.first.name)
                return 128 + signals.first
        return 0

    return uvloop.run(run())


def uvicorn_config(service: Service) -> uvicorn.Config:
    """Return how uvicorn serves a service: bounded, quiet, on the loop that runs."""
    limits = HttpLimits(
        max_connections=min(HttpLimits().max_connections, _num_descriptors() - _OWN_DESCRIPTORS)
    )
    protocol: Any = partial(
        BoundedHttpProtocol, limits=limits
    )  # typed as a class; uvicorn only ever calls it
    return uvicorn.Config(
        service.app,
        loop="none",
        http=protocol,
        ws=SocketProtocol,
        ws_max_size=MAX_SOCKET_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # whoever is near may write them
        backlog=_BACKLOG,
        timeout_keep_alive=75,  # above the 60 s of common proxies, so that they close first
        timeout_graceful_shutdown=_LAST_WORDS_S,
    )


def _num_descriptors() -> int:
    """Raise this process's limit of open files to what it may have, and return it: a connection takes one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _announce(listener: socket.socket, model: str, host: str, *, asks: bool) -> None:
    """Tell a person where the service is, and one line that works. On stdout: it is the command's result."""
    port = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{port}"
    messages = [{"role": "user", "content": "Hello!"}]
    body = json.dumps({"model": model, "stream": True, "max_tokens": 64, "messages": messages})
    quoted = body.replace("'", "'\\''")
    token = ' -H "Authorization: Bearer $TOKEN"' if asks else ""
    try:
        print(f"Headway serves {model} on {url}\n")
        print(
            f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json'{token} \\\n    -d '{quoted}'\n"
        )
        print("Stop with Ctrl-C.", flush=True)
    except OSError as error:  # the pipe's reader left, or the disk is full: no reason not to serve
        logger.warning("serving on %s, which could not be printed on stdout (%s)", url, error.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the exit fails on the same text
    if not asks and _is_loopback(listener):
        logger.info(
            "nobody is asked who he is, so the server listens on loopback only (--access changes both)"
        )


def check_reach(listener: socket.socket, host: str, *, asks: bool, allow_anonymous: bool) -> None:
    """Raise ConfigError where strangers could reach a server that asks nobody who he is, unless that is meant.

    `asks`: whether callers must say who they are.
    """
    if asks or _is_loopback(listener):
        return
    if allow_anonymous:
        logger.warning("listening on %s without asking who calls: whoever reaches it can use it", host)
    else:
        raise ConfigError(
            f"Whoever reaches {host} could use the server: say with --access who may, or with --allow-anonymous that a "
            "proxy in front sees to it."
        )


def _is_loopback(listener: socket.socket) -> bool:
    address = str(listener.getsockname()[0])
    return address == "::1" or address.startswith("127.")


class StopSignals:
    """Hands SIGTERM and SIGINT to `callback`, on the running event loop, while the context lasts."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, callback: Callable[[signal.Signals], object]) -> None:
        self.callback = callback
        self.first: signal.Signals | None = None

    def __enter__(self) -> "StopSignals":
        for number in self._SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _received(self, number: signal.Signals) -> None:
        self.first = self.first or number
        self.callback(number)


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains the service and whose second stops it."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_timeout_s: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_timeout_s = drain_timeout_s
        self._stopping: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `StopSignals`, which held them before this server existed."""
        yield

    def stop_nowait(self, number: signal.Signals) -> None:
        """Begin to drain, or give up draining."""
        if self._stopping is None:
            num_active = self._service.gateway.num_active
            limit = (
                f" within {self._drain_timeout_s:g} s; a second signal stops at once" if num_active else ""
            )
            logger.info("%s: taking no new requests, finishing %d%s", number.name, num_active, limit)
            self._stopping = asyncio.create_task(self._drain())
        elif not self._stopping.done():
            logger.warning("%s again: stopping now", number.name)
            self._stopping.cancel()

    async def _drain(self) -> None:
        self._service.gateway.drain_nowait()
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await self._service.gateway.wait_idle()
        except TimeoutError:
            logger.warning(
                "%d requests did not finish within %g s and are cut off",
                self._service.gateway.num_active,
                self._drain_timeout_s,
            )
        finally:
            try:
                await self._service.engine.close()
            finally:
                self.should_exit = True
