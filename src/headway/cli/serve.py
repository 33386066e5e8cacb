"""`headway serve`: serve a model over HTTP until a signal asks to stop.

The first SIGTERM or SIGINT drains: new requests are refused with 503, running ones finish within `--drain-timeout`, then
the process exits with 0. A second one stops at once.
"""

import argparse
import asyncio
import json
import logging
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from headway.cli.options import (
    add_engine_options,
    add_log_options,
    add_scheduler_options,
    byte_size,
    engine_config,
    positive,
)
from headway.cli.service import Service, running_service
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError
from headway.gateway.config import GatewayConfig
from headway.models.fetch import resolve_model
from headway.models.sources import MODELS, served_name
from headway.obs.logs import configure

if TYPE_CHECKING:
    from headway.cli.main import Subparsers

logger = logging.getLogger(__name__)

_GATEWAY = GatewayConfig()
_LAST_WORDS_S = 2
"""After the engine stopped, cut-off streams get this long to send their error."""
_BACKLOG = 2048
"""Connections that may wait to be accepted: uvicorn's default."""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP (OpenAI's API)",
        description="Serve a model over HTTP with OpenAI's API, streaming included.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        default="smollm2",
        help=f"a known name ({', '.join(MODELS)}) or the path of a .gguf file (default: %(default)s)",
    )
    network = parser.add_argument_group("network")
    network.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; there is no authentication yet, so keep it on loopback "
        "or behind a proxy that has some (default: %(default)s)",
    )
    network.add_argument(
        "--port", type=int, default=8000, help="port to listen on; 0 = any free one (default: %(default)s)"
    )
    network.add_argument(
        "--served-name", metavar="NAME", help="the `model` that requests name (default: from MODEL)"
    )
    network.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="web origin whose pages may call the service (CORS); may be repeated; * = every one (default: none)",
    )
    network.add_argument(
        "--max-body",
        metavar="SIZE",
        type=byte_size,
        default=_GATEWAY.max_body_bytes,
        help="largest request body; a larger one is refused with 413 (default: 8M)",
    )
    network.add_argument(
        "--drain-timeout",
        metavar="SECONDS",
        type=positive,
        default=30,
        help="how long running requests may go on after a signal to stop (default: %(default)s)",
    )
    add_engine_options(parser)
    add_scheduler_options(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped; raises HeadwayError when the service cannot start."""
    configure(args.log_level.upper(), args.log_json)
    listener = _bind(args.host, args.port)
    with listener:
        path = resolve_model(args.model)
        config = engine_config(args, args.served_name or served_name(args.model), str(path))
        return uvloop.run(_serve(args, config, listener))


def _bind(host: str, port: int) -> socket.socket:
    """Take the address before anything slow happens, so that a port in use is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port} ({error}); choose another address with --host and --port."
        ) from error
    return listener


async def _serve(args: argparse.Namespace, config: EngineConfig, listener: socket.socket) -> int:
    gateway_config = GatewayConfig(max_body_bytes=args.max_body, allow_origins=tuple(args.allow_origin))
    async with running_service(
        config, gateway_config, log_level=args.log_level.upper(), log_json=args.log_json
    ) as service:
        server = DrainingServer(
            uvicorn.Config(
                service.app,
                loop="none",
                http="httptools",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                backlog=_BACKLOG,
                timeout_keep_alive=75,  # above the 60 s of common proxies, so that they close first
                timeout_graceful_shutdown=_LAST_WORDS_S,
            ),
            service,
            args.drain_timeout,
        )
        listener.listen(_BACKLOG)
        _announce(listener, config, args.host)
        await server.serve(sockets=[listener])
    return 0


def _announce(listener: socket.socket, config: EngineConfig, host: str) -> None:
    """Tell a person where the service is, and one line that works. On stdout: it is the command's result."""
    port = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{port}"
    body = json.dumps(
        {"model": config.model, "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}
    )
    print(f"Headway serves {config.model} on {url}\n")
    print(f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{body}'\n")
    print("Stop with Ctrl-C.", flush=True)
    if not _is_loopback(listener):
        logger.warning("listening on %s without authentication: whoever reaches it can use it", host)


def _is_loopback(listener: socket.socket) -> bool:
    address = str(listener.getsockname()[0])
    return address == "::1" or address.startswith("127.")


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose first signal drains the service and whose second stops it."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_timeout_s: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_timeout_s = drain_timeout_s
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Begin to drain, or give up draining. Runs as a signal handler: it only leaves word for the event loop."""
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(sig).name)

    def _stop(self, signal_name: str) -> None:
        if self._stopping is None:
            logger.info(
                "%s: taking no new requests, finishing %d", signal_name, self._service.gateway.num_active
            )
            self._stopping = asyncio.create_task(self._drain())
        else:
            logger.warning("%s again: stopping now", signal_name)
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
