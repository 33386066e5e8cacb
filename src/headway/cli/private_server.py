"""A service for this process alone: on a Unix socket in a private folder, on an event loop in a thread of its own."""

import asyncio
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from headway.cli.service import ServiceSettings, running_service
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError

_THREAD_START_S = 5.0
"""A thread that exists runs within milliseconds, on a loaded machine within a second."""

_SIGNAL_DELAY_S = 0.2
"""Longest that a Ctrl-C which hits that moment goes unnoticed; about the least that a person notices."""


@contextmanager
def private_server(config: EngineConfig, log_level: str, log_json: bool) -> Iterator[Path]:
    """Serve `config` while the context lasts; yield the socket's path. Raises what keeps the engine from starting."""
    with _private_folder() as folder:
        path = Path(folder, "http.sock")
        server = _ServerThread(config, path, log_level, log_json)
        try:  # a signal may raise anywhere below, also within the start of the thread
            server.start()
            server.wait_started()
            yield path
        finally:
            server.stop()


def _private_folder() -> "tempfile.TemporaryDirectory[str]":
    """Make the socket's folder, of mode 0700: nobody else gets in. Raises ConfigError."""
    try:
        return tempfile.TemporaryDirectory(prefix="headway-")
    except OSError as error:
        raise _no_socket(error) from error


def _no_socket(error: OSError) -> ConfigError:
    return ConfigError(
        f"The private socket could not be made ({error.strerror or error}): let TMPDIR name a writable folder "
        "with a short path."
    )


class _ServerThread:
    """The event loop and what runs on it."""

    def __init__(self, config: EngineConfig, path: Path, log_level: str, log_json: bool) -> None:
        self._config = config
        self._path = path
        self._log_level = log_level
        self._log_json = log_json
        self._running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
        self._started: Future[None] = Future()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="headway-server")

    def start(self) -> None:
        self._thread.start()

    def wait_started(self) -> None:
        while (
            not self._started.done()
        ):  # a signal that comes just before a wait does not end it: let none last long
            wait((self._started,), _SIGNAL_DELAY_S)
        self._started.result()

    def stop(self) -> None:
        """Cancel whatever it does, even if it is still starting, and wait for its end."""
        try:
            loop, task = self._running.result(_THREAD_START_S)
        except TimeoutError:  # start was interrupted before there was a thread
            return
        with suppress(RuntimeError):  # the loop has closed already
            loop.call_soon_threadsafe(self._end, task)
        self._thread.join()

    def _end(self, task: asyncio.Task[None]) -> None:
        if self._server is None:
            task.cancel()
        else:
            self._server.should_exit = True

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(self._serve())
        self._running.set_result((loop, task))
        try:
            loop.run_until_complete(task)
        except BaseException as error:  # handed to the thread that waits for the start
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            loop.close()

    async def _serve(self) -> None:
        settings = ServiceSettings(engine=self._config, log_level=self._log_level, log_json=self._log_json)
        async with running_service(settings) as service:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                try:
                    listener.bind(str(self._path))
                except OSError as error:
                    raise _no_socket(error) from error
                listener.listen()  # from here on connections wait until the server takes them
                self._started.set_result(None)
                self._server = uvicorn.Server(
                    uvicorn.Config(
                        service.app,
                        log_config=None,
                        log_level="warning",
                        access_log=False,
                        ws="none",
                        timeout_graceful_shutdown=1,
                    )
                )
                await self._server.serve(sockets=[listener])
