"""A real uvicorn server on an ephemeral loopback port, on a thread with its own event loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


@contextmanager
def live_server(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Serve `app`; yield (host, port); stop when left, cutting off what still runs."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1, http="httptools"
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
