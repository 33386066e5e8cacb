"""A real uvicorn server on an ephemeral loopback port, on a thread with its own event loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from headway.cli.http_protocol import BoundedHttpProtocol, HttpLimits
from headway.cli.socket_protocol import SocketProtocol


@contextmanager
def live_server(app: ASGIApp, limits: HttpLimits | None = None, **options: Any) -> Iterator[tuple[str, int]]:
    """Serve `app`; yield (host, port); stop when left, cutting off what still runs. `options`: of uvicorn."""
    protocol: Any = partial(BoundedHttpProtocol, limits=limits or HttpLimits())  # uvicorn only ever calls it
    settings: dict[str, Any] = {
        "http": protocol,
        "ws": SocketProtocol,
        "ws_per_message_deflate": False,
        **options,
    }
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1, **settings
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # connections wait in the backlog until the loop runs: nobody has to poll for it
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()
