"""KV blocks that left the block pool: in memory (`host_store`), in files (`block_files`), and back when asked for.

A block goes to both: memory gives it back sooner, files survive a restart. Not to files only once memory drops it: of a
prefix the end goes first, and after a restart an end without its beginning is worth nothing. Blocks stay where they are
when they come back, so that going out again costs nothing.

Files are written and read by `jobs`, memory at once. It knows no block ids and no sequences; who decides whether to come
back is told what each block would cost (`find`). One thread, but for the jobs.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headway.core.clock import Clock
from headway.kv.bandwidth import Bandwidth
from headway.kv.block_files import BlockFiles, FolderInUse
from headway.kv.host_store import HostStore
from headway.kv.job_thread import Jobs
from headway.kv.prefix_cache import BlockKey
from headway.kv.stored_block import StoredBlock, Wanted, store

logger = logging.getLogger(__name__)


class Tier(Enum):
    """Where a block may lie outside the pool."""

    HOST = "host"
    DISK = "disk"


ASSUMED_BYTES_PER_S = {Tier.HOST: 1e9, Tier.DISK: 2e8}
"""Before anything was read: a checksum and two copies on one slow core; a disk of the cheaper sort (docs/log.md)."""


@dataclass(slots=True)
class Traffic:
    """What went to a tier and came back, over the engine's life."""

    offloaded_blocks: int = 0
    offloaded_bytes: int = 0
    restored_blocks: int = 0
    restored_bytes: int = 0


@dataclass(slots=True, eq=False)
class Fetch:
    """A block on its way back; `block` counts once `is_done`, None = it is lost. `is_cancelled`: nobody waits any more."""

    tier: Tier
    block: StoredBlock | None = field(default=None, repr=False)
    is_done: bool = False
    is_cancelled: bool = False


class Tiers:
    """Owns both tiers; either may be absent."""

    def __init__(self, clock: Clock, jobs: Jobs, host: HostStore | None, files: BlockFiles | None) -> None:
        self._clock = clock
        self._jobs = jobs
        self._host = host
        self._files = files
        self._bandwidths = {tier: Bandwidth(rate) for tier, rate in ASSUMED_BYTES_PER_S.items()}
        self._used: list[bytes] = []  # since the last `note_used`, of what lies in files
        self.traffic = {tier: Traffic() for tier in Tier}
        self.num_lost = 0

    def __bool__(self) -> bool:
        return self._host is not None or self._files is not None

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when a `Fetch` is done."""
        self._jobs.wake_with(wake)

    def num_bytes(self, tier: Tier) -> int:
        """Return what a tier holds."""
        holder = self._host if tier is Tier.HOST else self._files
        return 0 if holder is None else holder.num_bytes

    def offload(
        self, digest: bytes, content: Callable[[], tuple[bytes, bytes]], read: Callable[[], bytes]
    ) -> None:
        """Keep a block that leaves the pool.

        content   gives its cache partition and tokens, as `PrefixCache.content` does
        read      gives its bytes; neither is asked when they are here already
        """
        host = self._host if self._host is not None and digest not in self._host else None
        files = self._files if self._files is not None and digest not in self._files else None
        if self._host is not None and host is None:
            self._host.touch(digest)
        if self._files is not None and files is None:
            self._used.append(digest)
        if host is None and files is None:
            return
        block = store(digest, *content(), read())
        if host is not None and host.put(block):
            self._count(Tier.HOST, block)
        if files is not None:
            self._write(files, block)

    def note_used(self) -> None:
        """Let files know of blocks that were offered again; call it once a step."""
        if self._files is not None and self._used:
            used, files = self._used, self._files
            self._used = []
            self._jobs.write(lambda: files.touch(used), 0)

    def find(self, keys: Sequence[BlockKey]) -> list[float]:
        """Return the rate, in bytes a second, at which each of the first blocks of `keys` would come back.

        It ends before the first that is nowhere. Digests alone are looked at: what is fetched may yet turn out another.
        """
        rates: list[float] = []
        if self:
            now_ns = self._clock.now_ns()
            host = self._bandwidths[Tier.HOST].at(now_ns)
            disk = self._bandwidths[Tier.DISK].at(now_ns)
            for key in keys:
                tier = self._tier_of(key.digest)
                if tier is None:
                    break
                rates.append(host if tier is Tier.HOST else disk)
        return rates

    def fetch(self, wanted: Wanted) -> Fetch | None:
        """Begin to bring a block back; None if it is nowhere."""
        if self._host is not None and (block := self._host.get(wanted)) is not None:
            return Fetch(Tier.HOST, block, is_done=True)
        if self._files is None or wanted.digest not in self._files:
            return None
        fetch, files = Fetch(Tier.DISK), self._files

        def read() -> None:
            if not fetch.is_cancelled:
                started_ns = self._clock.now_ns()
                fetch.block = files.read(wanted)
                if fetch.block is not None:
                    self._observe(Tier.DISK, fetch.block, started_ns)
            fetch.is_done = True

        self._jobs.read(read)
        return fetch

    def put_back(self, fetch: Fetch, write: Callable[[bytes], None]) -> bool:
        """Give the bytes of a done fetch to `write`, if they are what was stored; return whether they were."""
        block = fetch.block
        started_ns = self._clock.now_ns()
        if block is None:
            self.num_lost += 1
            return False
        if fetch.tier is Tier.HOST and not block.is_intact:  # what came of a file has been checked
            logger.error("a KV block changed in memory; it is computed again")
            self.drop(block.digest)
            self.num_lost += 1
            return False
        write(block.data)
        if fetch.tier is Tier.HOST:
            self._observe(Tier.HOST, block, started_ns)
        self.traffic[fetch.tier].restored_blocks += 1
        self.traffic[fetch.tier].restored_bytes += len(block.data)
        return True

    def drop(self, digest: bytes) -> None:
        """Forget a block, wherever it lies."""
        if self._host is not None:
            self._host.drop(digest)
        if self._files is not None:
            files = self._files
            self._jobs.write(lambda: files.drop(digest), 0)

    def __contains__(self, digest: bytes) -> bool:
        return self._tier_of(digest) is not None

    def _tier_of(self, digest: bytes) -> Tier | None:
        if self._host is not None and digest in self._host:
            return Tier.HOST
        if self._files is not None and digest in self._files:
            return Tier.DISK
        return None

    def _write(self, files: BlockFiles, block: StoredBlock) -> None:
        def write() -> None:
            if files.write(block):
                self._count(Tier.DISK, block)

        self._jobs.write(write, block.num_bytes)

    def _count(self, tier: Tier, block: StoredBlock) -> None:
        self.traffic[tier].offloaded_blocks += 1
        self.traffic[tier].offloaded_bytes += len(block.data)

    def _observe(self, tier: Tier, block: StoredBlock, started_ns: int) -> None:
        now_ns = self._clock.now_ns()
        before = self._bandwidths[tier]
        self._bandwidths[tier] = before.observed(len(block.data), now_ns - started_ns, now_ns)


def open_tiers(
    clock: Clock, jobs: Jobs, *, host_bytes: int, disk_path: str | None, disk_bytes: int, identity: str
) -> Tiers:
    """Return the tiers that settings ask for; a folder that cannot be used is logged, and done without."""
    files = None
    if disk_path is not None and disk_bytes:
        try:
            files = BlockFiles(Path(disk_path), identity, disk_bytes)
        except (FolderInUse, OSError) as error:
            logger.warning("KV blocks are not kept on disk: %s", error)
    return Tiers(clock, jobs, HostStore(host_bytes) if host_bytes else None, files)
