"""The engine in a process of its own, which is the default.

Why: a thread that let go of the GIL for native work waits about 5 ms to get it back while another thread runs Python; a
process does not. This file starts, watches and reaps the process; what its end means is `supervisor`'s, what runs inside
is `worker`'s.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.errors import EngineUnavailable
from headway.core.events import Hook
from headway.core.messages import ToEngine
from headway.engine.frames import LogSettings, Start
from headway.engine.gateway_channel import GatewayChannel
from headway.engine.link import Link, Receiver
from headway.engine.supervisor import Sleep, SupervisedEngineClient

STOP_TIMEOUT_S = 5.0
"""An engine sees its socket's end after the step it is in: well under a second; beyond this it hangs."""
DEFAULT_FACTORY = "headway.engine.build:build_engine"


class ProcessEngineClient(SupervisedEngineClient):
    """An `EngineClient` whose engine is a child process. Belongs to one event loop.

    factory   "module:function" of an `EngineFactory`, imported in the child
    log       how the child logs to its stderr, which is ours; None = plain lines
    env       the child's environment; None = ours
    sleep     waits out the back-off between restarts
    """

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        hook: Hook | None = None,
        *,
        factory: str = DEFAULT_FACTORY,
        log: LogSettings | None = None,
        env: Mapping[str, str] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._process_launcher = _ProcessLauncher(Start(config=config, factory=factory, log=log), env)
        super().__init__(self._process_launcher, config.model, clock, hook, sleep)

    @property
    def pid(self) -> int | None:
        """The process id of the engine that was started last; None before the first."""
        return self._process_launcher.pid


class _ProcessLauncher:
    """Starts engine processes, all alike."""

    def __init__(self, start: Start, env: Mapping[str, str] | None) -> None:
        self._start = start
        self._env = env
        self.pid: int | None = None

    async def launch(self, receiver: Receiver) -> Link:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                process = await self._spawn(theirs.fileno())
        except OSError as error:
            ours.close()
            raise EngineUnavailable(f"The engine process could not be started: {error}.") from error
        except BaseException:
            ours.close()
            raise
        self.pid = process.pid
        link = _ProcessLink(process)
        try:
            link.channel = await GatewayChannel.open(ours, receiver)
            link.channel.send(self._start)
        except BaseException:
            ours.close()
            await link.stop()
            raise
        return link

    async def _spawn(self, fd: int) -> asyncio.subprocess.Process:
        # -P keeps the working directory off the module path; a session of its own keeps a terminal's signals away.
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "headway.engine.worker", "--fd", str(fd)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=2,  # stdout may carry a program's result; an engine only logs
            pass_fds=(fd,),
            start_new_session=True,
            env=None if self._env is None else dict(self._env),
        )


class _ProcessLink:
    """One engine process and the channel to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.channel: GatewayChannel | None = None

    def send(self, message: ToEngine) -> None:
        assert self.channel is not None
        self.channel.send(message)

    async def stop(self) -> str:
        """Close the socket, give the process `STOP_TIMEOUT_S` to leave, kill it; return how it ended."""
        listens = self.channel is not None and self.channel.has_received
        if self.channel is not None:
            self.channel.abort("it was stopped")
        try:
            # Not asyncio.timeout, which ends in CancelledError in a cancelled task in the first releases of 3.11.
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S if listens else 0)
        except BaseException as error:  # beyond the bound, or in a hurry: it holds nothing worth saving
            self._kill()
            if not isinstance(error, TimeoutError):
                raise
            await self._process.wait()
        return describe_exit(self._process.returncode)

    def _kill(self) -> None:
        # `Process.kill` polls first and so may reap what asyncio waits for, which then reports status 255 and warns.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


def describe_exit(status: int | None) -> str:
    """Say how a process ended, from its status as `subprocess` gives it (-N = killed by signal N)."""
    if status is None:
        return "its process has not ended"
    if status >= 0:
        return f"its process ended with status {status}"
    with suppress(ValueError):
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process was killed by signal {-status}"
