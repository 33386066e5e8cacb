"""Tiers for an engine on the fake runner, whose reads and writes of files wait for the test."""

from pathlib import Path

from headway.core.clock import Clock, ManualClock
from headway.kv.block_files import BlockFiles
from headway.kv.host_store import HostStore
from headway.kv.tiers import Tiers
from support.kv_jobs import ManualJobs


def make_tiers(
    jobs: ManualJobs,
    *,
    host_bytes: int = 0,
    folder: Path | None = None,
    disk_bytes: int = 1 << 20,
    clock: Clock | None = None,
) -> tuple[Tiers, BlockFiles | None]:
    """Return tiers, and their files to be closed for a restart."""
    files = None if folder is None else BlockFiles(folder, "fake 16", disk_bytes)
    host = HostStore(host_bytes) if host_bytes else None
    return Tiers(clock or ManualClock(), jobs, host, files), files
