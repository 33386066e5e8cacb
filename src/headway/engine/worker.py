"""The engine process: `python -m headway.engine.worker --fd N`, started by `engine.process` and by nobody else.

`N` is its end of the socket pair; the first message on it is `Start`. The process ends when the other end closes (the
gateway stopped it, or died), when it was told to drain and nothing runs, or when the engine fails.

Signals: a Ctrl-C in a terminal and a service manager's SIGTERM reach the whole group of processes, but the engine must
finish what the gateway still drains. So SIGINT and SIGTERM are ignored here; the gateway ends this process by closing the
socket and, beyond a bound, with SIGKILL. Should the gateway die while a model loads, when nobody reads the socket, the
kernel's parent-death signal (prctl(2), PR_SET_PDEATHSIG) ends the process at once.
"""

import argparse
import ctypes
import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from headway.core.clock import MonotonicClock
from headway.engine.frames import Start
from headway.engine.service import EngineFactory, StepEngine, freeze_heap, run_engine
from headway.engine.transport import EngineChannel

PR_SET_PDEATHSIG = 1  # linux/prctl.h
EXIT_FAILED = 70  # EX_SOFTWARE of sysexits.h

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one gateway; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="headway.engine.worker", description="Started by Headway itself.")
    parser.add_argument("--fd", type=int, required=True, help="inherited stream socket to the gateway")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()
    channel = EngineChannel(socket.socket(fileno=arguments.fd))
    start = _receive_start(channel)
    if start is None:
        return 0
    _set_up_logging(start)

    def build() -> StepEngine:
        factory: EngineFactory = resolve_name(start.factory)
        engine = factory(start.config, MonotonicClock())
        freeze_heap()
        return engine

    ended_well = run_engine(channel, build)
    gc.unfreeze()  # else what refers to itself outlives the interpreter, and the native module tells of leaks
    return 0 if ended_well else EXIT_FAILED


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends; without libc the socket must do."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        logger.warning("no parent-death signal here: the socket's end alone will tell")


def _receive_start(channel: EngineChannel) -> Start | None:
    while not channel.ended:
        for message in channel.receive():
            return message if isinstance(message, Start) else None
        channel.wait()
    return None


def _set_up_logging(start: Start) -> None:
    if start.log is None:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    else:
        resolve_name(start.log.setup)(start.log.level, start.log.json)


if __name__ == "__main__":
    sys.exit(main())
