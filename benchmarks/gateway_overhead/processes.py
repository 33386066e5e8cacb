"""Starts a server as a process of its own, and reads what it takes of the machine."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """A server that listens on `port` of loopback."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """Return the processor time that it has taken, by proc_pid_stat(5), in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_S

    def resident_bytes(self) -> int:
        """Return its resident memory, by proc_pid_statm(5)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES


@asynccontextmanager
async def running(module: str, *args: str) -> AsyncIterator[Process]:
    """Run `python -m module args`, which prints its port and serves until its input ends; its log goes nowhere."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Process(process.pid, int(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()
