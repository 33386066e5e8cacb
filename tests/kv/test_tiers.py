"""What leaves the pool goes to memory, then to files, and comes back unchanged or not at all."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from headway.core.clock import NS_PER_MS, ManualClock
from headway.kv.block_files import BlockFiles
from headway.kv.host_store import HostStore
from headway.kv.prefix_cache import BlockKey
from headway.kv.stored_block import Wanted
from headway.kv.tiers import ASSUMED_BYTES_PER_S, Tier, Tiers, open_tiers
from support.kv_jobs import ManualJobs

BLOCK_BYTES = 104  # with its tokens


@dataclass
class Bench:
    """Tiers of `host` and `disk` blocks in a folder."""

    folder: Path
    host: int = 0
    disk: int = 0
    jobs: ManualJobs = field(default_factory=ManualJobs)
    clock: ManualClock = field(default_factory=ManualClock)
    file_bytes: int = 200

    def __post_init__(self) -> None:
        files = BlockFiles(self.folder, "model", self.disk * self.file_bytes) if self.disk else None
        self.memory = HostStore(self.host * BLOCK_BYTES) if self.host else None
        self.tiers = Tiers(self.clock, self.jobs, self.memory, files)

    def offload(self, *numbers: int) -> None:
        for number in numbers:
            self.tiers.offload(key(number).digest, partial(content, number), partial(data, number))

    def restore(self, number: int) -> bytes | None:
        """Return what comes back of a block, None if nothing does."""
        fetch = self.tiers.fetch(Wanted(key(number).digest, b"root", tokens(number), 4))
        if fetch is None:
            return None
        self.jobs.run()
        assert fetch.is_done
        got: list[bytes] = []
        return got[0] if self.tiers.put_back(fetch, got.append) else None


def tokens(number: int) -> bytes:
    return bytes([number]) * 4


def content(number: int) -> tuple[bytes, bytes]:
    return b"root", tokens(number)


def data(number: int) -> bytes:
    return bytes([number]) * 100


def key(number: int) -> BlockKey:
    return BlockKey(bytes([number]) * 16, tokens(number))


def test_memory_gives_back_what_it_has_and_files_the_rest(tmp_path: Path) -> None:
    bench = Bench(tmp_path, host=2, disk=9)
    bench.offload(1, 2, 3)
    assert len(bench.tiers.find([key(1)])) == 0  # on its way
    bench.jobs.run()
    assert len(list(tmp_path.glob("kv-*/*"))) == 3
    assert bench.tiers.find([key(3), key(2), key(1), key(4), key(3)]) == [1e9, 1e9, 2e8]
    assert [bench.restore(number) for number in (1, 2, 3, 4)] == [data(1), data(2), data(3), None]
    host, disk = bench.tiers.traffic[Tier.HOST], bench.tiers.traffic[Tier.DISK]
    assert (host.offloaded_blocks, host.restored_blocks, host.offloaded_bytes) == (3, 2, 300)
    assert (disk.offloaded_blocks, disk.restored_blocks, disk.restored_bytes) == (3, 1, 100)


def test_what_is_offered_again_is_used(tmp_path: Path) -> None:
    file_bytes = 100 + 4 + 32 + len("model") + 1 + len("root")
    bench = Bench(tmp_path / "two", disk=2, file_bytes=file_bytes)
    bench.offload(1, 2)
    bench.jobs.run()
    bench.offload(1)
    bench.tiers.note_used()
    bench.offload(3)
    bench.jobs.run()
    assert [number for number in (1, 2, 3) if key(number).digest in bench.tiers] == [1, 3]


def test_without_memory_files_take_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk=9)
    bench.offload(1)
    bench.jobs.run()
    assert bench.restore(1) == data(1)


def test_without_files_the_oldest_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, host=2)
    bench.offload(1, 2, 3)
    assert [bench.restore(number) for number in (1, 2, 3)] == [None, data(2), data(3)]
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_is_here_is_not_read_again(tmp_path: Path) -> None:
    for bench in (Bench(tmp_path / "a", host=2), Bench(tmp_path / "b", disk=2)):
        bench.offload(1)
        bench.jobs.run()

        def never() -> bytes:
            raise AssertionError("it was read")

        bench.tiers.offload(key(1).digest, partial(content, 1), never)
        assert bench.restore(1) == data(1)


def test_memory_that_changed_is_a_miss_and_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, host=2)
    bench.offload(1)
    assert bench.memory is not None
    good = bench.memory.get(Wanted(key(1).digest, b"root", tokens(1), 4))
    assert good is not None
    bench.memory.put(replace(good, data=data(1)[:-1] + b"!"))
    assert bench.restore(1) is None
    assert bench.tiers.num_lost == 1
    assert key(1).digest not in bench.tiers


def test_too_much_to_write_is_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk=9, jobs=ManualJobs(max_writes=2))
    bench.offload(1, 2, 3)
    bench.jobs.run()
    assert [bench.restore(number) for number in (1, 2, 3)] == [data(1), data(2), None]


def test_a_dropped_block_is_nowhere(tmp_path: Path) -> None:
    bench = Bench(tmp_path, host=1, disk=9)
    bench.offload(1, 2)
    bench.jobs.run()
    for number in (1, 2, 3):
        bench.tiers.drop(key(number).digest)
    bench.jobs.run()
    assert [bench.restore(number) for number in (1, 2, 3)] == [None, None, None]
    assert bench.tiers.num_bytes(Tier.HOST) == bench.tiers.num_bytes(Tier.DISK) == 0


def test_a_block_that_waits_to_be_written_is_dropped_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk=9)
    bench.offload(1)
    bench.tiers.drop(key(1).digest)
    bench.jobs.run()
    assert key(1).digest not in bench.tiers


def test_a_cancelled_fetch_reads_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, disk=9)
    bench.offload(1)
    bench.jobs.run()
    fetch = bench.tiers.fetch(Wanted(key(1).digest, b"root", tokens(1), 4))
    assert fetch is not None
    fetch.is_cancelled = True
    bench.jobs.run()
    assert fetch.is_done
    assert fetch.block is None


def test_rates_follow_what_reads_took(tmp_path: Path) -> None:
    bench = Bench(tmp_path, host=1, disk=9)
    bench.offload(1, 2)
    bench.jobs.run()
    fetch = bench.tiers.fetch(Wanted(key(2).digest, b"root", tokens(2), 4))
    assert fetch is not None
    assert bench.tiers.put_back(fetch, lambda _: bench.clock.advance(NS_PER_MS))
    host, disk = bench.tiers.find([key(2), key(1)])
    assert host == pytest.approx(ASSUMED_BYTES_PER_S[Tier.HOST] ** 0.8 * (100 * 1000) ** 0.2)
    assert disk == ASSUMED_BYTES_PER_S[Tier.DISK]


def test_settings_decide_what_there_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def opened(host_bytes: int, disk_path: Path | None) -> bool:
        path = None if disk_path is None else str(disk_path)
        return bool(
            open_tiers(
                ManualClock(),
                ManualJobs(),
                host_bytes=host_bytes,
                disk_path=path,
                disk_bytes=1_000,
                identity="model",
            )
        )

    assert not opened(0, None)
    assert opened(1, None)
    assert opened(0, tmp_path / "kv")
    (tmp_path / "file").write_text("")
    assert not caplog.records
    assert not opened(0, tmp_path / "file")
    assert "not kept on disk" in caplog.text
