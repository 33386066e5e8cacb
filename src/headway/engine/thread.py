"""The engine on a thread of the gateway's own process: for debugging, and where a second process is not wanted.

It speaks the same frames over the same kind of socket as the engine process, so nothing but the process differs. It shares
the GIL with the gateway: with many streams its steps are slower than a process's.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.events import Hook
from headway.core.messages import ToEngine
from headway.engine.gateway_channel import GatewayChannel
from headway.engine.link import Link, Receiver
from headway.engine.service import EngineFactory, StepEngine, run_engine
from headway.engine.supervisor import Sleep, SupervisedEngineClient
from headway.engine.transport import EngineChannel

STOP_TIMEOUT_S = 5.0
"""As for a process; a thread cannot be killed, so beyond this it is left behind and logged."""

logger = logging.getLogger(__name__)


class ThreadEngineClient(SupervisedEngineClient):
    """An `EngineClient` whose engine runs on a thread of this process. Belongs to one event loop."""

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        hook: Hook | None = None,
        *,
        factory: EngineFactory,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        launcher = _ThreadLauncher(config.model, lambda: factory(config, clock))
        super().__init__(launcher, config.model, clock, hook, sleep)


class _ThreadLauncher:
    """Starts engine threads, all alike."""

    def __init__(self, name: str, build: Callable[[], StepEngine]) -> None:
        self._name = name
        self._build = build

    async def launch(self, receiver: Receiver) -> Link:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel = await GatewayChannel.open(ours, receiver)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        link = _ThreadLink(channel)
        link.start(EngineChannel(theirs), self._build, self._name)
        return link


class _ThreadLink:
    """One engine thread and the channel to it."""

    def __init__(self, channel: GatewayChannel) -> None:
        self._channel = channel
        self._ended = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._ended_well = False

    def start(self, channel: EngineChannel, build: Callable[[], StepEngine], name: str) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            self._ended_well = run_engine(channel, build)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._ended.set)

        self._thread = threading.Thread(target=run, name=f"engine of {name}", daemon=True)
        self._thread.start()

    def send(self, message: ToEngine) -> None:
        self._channel.send(message)

    async def stop(self) -> str:
        self._channel.abort("it was stopped")
        try:
            await asyncio.wait_for(self._ended.wait(), STOP_TIMEOUT_S)  # not asyncio.timeout: see `process`
        except TimeoutError:
            logger.error("an engine thread does not end; it is left behind")
            return "its thread does not end"
        if self._thread is not None:
            self._thread.join()
        return "its thread ended" if self._ended_well else "its thread failed"
