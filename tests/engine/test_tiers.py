"""KV that left the block pool comes back, other work goes on meanwhile, and no answer ever differs."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from headway.core.clock import NS_PER_MS, ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, EngineStats, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine
from headway.kv.prefix_cache import PrefixChain
from headway.runner.fake import FakeRunner
from headway.runner.step import Step
from support.engine_on_fake import (
    Received,
    assert_idle,
    make_engine,
    make_request,
    prompt,
    run_alone,
    run_until_idle,
    step_checked,
)
from support.kv_jobs import ManualJobs
from support.kv_tiers import make_tiers

HOT = SamplingParams(temperature=1.0, seed=3)
SMALL = SchedulerConfig(max_draft_tokens=0)


class SlowRunner(FakeRunner):
    """Writing a block takes `write_ns`, a step `cost_ns(step)`."""

    def __init__(
        self,
        clock: ManualClock,
        write_ns: int,
        *,
        num_blocks: int,
        max_context: int,
        cost_ns: Callable[[Step], int],
    ) -> None:
        super().__init__(
            num_blocks=num_blocks,
            max_context=max_context,
            clock=clock,
            cost_ns=cost_ns,
        )
        self._ticking = clock
        self._write_ns = write_ns

    def write_block(self, block: int, data: bytes) -> None:
        self._ticking.advance(self._write_ns)
        super().write_block(block, data)


@dataclass
class Stand:
    """An engine of few blocks with tiers."""

    host_bytes: int = 0
    folder: Path | None = None
    num_blocks: int = 16
    limits: SchedulerConfig = SMALL
    clock: ManualClock = field(default_factory=ManualClock)
    jobs: ManualJobs = field(default_factory=ManualJobs)
    step_ns: int = 0
    write_ns: int = 0

    def __post_init__(self) -> None:
        self.runner = SlowRunner(
            self.clock,
            self.write_ns,
            num_blocks=self.num_blocks,
            max_context=8192,
            cost_ns=lambda step: self.step_ns * len(step.tokens),
        )
        self.tiers, self.files = make_tiers(
            self.jobs, host_bytes=self.host_bytes, folder=self.folder, clock=self.clock
        )
        self.engine: Engine = make_engine(self.runner, self.clock, self.limits, self.tiers)
        self.got = Received()

    @property
    def stats(self) -> EngineStats:
        return self.engine.statistics()

    def serve(self, *requests: Request) -> None:
        """Serve requests to their end, files being read and written at once."""
        for request in requests:
            self.engine.handle(Submit(request))
        while self.engine.has_work:
            if step_checked(self.engine, self.got) is None:
                assert self.jobs.run(), "the engine waits for nothing"
        self.jobs.run()

    def check(self, *requests: Request) -> None:
        """Every answer is what its request gets alone."""
        for request in requests:
            assert self.got.finished[request.request_id].error is None
            assert self.got.of(request.request_id) == run_alone(request).of(request.request_id)


def conversation(name: str, length: int = 160, start: int = 0) -> Request:
    return make_request(name, prompt(length, start), 4, HOT)


FIRST, OTHER, AGAIN = conversation("first"), conversation("other", 240, 5), conversation("again")


@pytest.fixture(params=["host", "disk"])
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    return Stand(host_bytes=1 << 20) if request.param == "host" else Stand(folder=tmp_path / "kv")


def restored_blocks(stand: Stand) -> int:
    return stand.stats.host_restored_blocks_total + stand.stats.disk_restored_blocks_total


def test_what_was_evicted_comes_back_instead_of_being_computed(stand: Stand) -> None:
    stand.serve(FIRST, OTHER)
    computed = stand.stats.prefill_tokens_total
    stand.serve(AGAIN)
    stand.check(FIRST, OTHER, AGAIN)
    assert stand.stats.prefill_tokens_total - computed == 16  # the last block: its logits are needed
    assert restored_blocks(stand) > 0
    assert stand.got.finished["again"].usage.cached_tokens == 144
    assert stand.stats.lost_kv_blocks_total == 0
    assert_idle(stand.engine)


def test_without_tiers_it_is_computed() -> None:
    stand = Stand()
    stand.serve(FIRST, OTHER)
    computed = stand.stats.prefill_tokens_total
    stand.serve(AGAIN)
    assert stand.stats.prefill_tokens_total - computed > 100


def test_what_memory_drops_comes_back_from_disk(tmp_path: Path) -> None:
    stand = Stand(host_bytes=1_000, folder=tmp_path)
    stand.serve(FIRST, OTHER)
    stand.serve(AGAIN)
    stand.check(FIRST, OTHER, AGAIN)
    assert stand.stats.disk_restored_blocks_total > 0
    assert 0 < stand.stats.host_kv_bytes <= 1_000
    assert stand.stats.disk_kv_bytes > 0


def test_others_go_on_while_a_disk_is_read(tmp_path: Path) -> None:
    stand = Stand(folder=tmp_path)
    stand.serve(FIRST, OTHER)
    stand.engine.handle(Submit(AGAIN))
    stand.engine.handle(Submit(beside := make_request("beside", prompt(20, 9), 8)))
    for _ in range(6):
        step_checked(stand.engine, stand.got)
    assert len(stand.got.of("beside")) == 6
    assert stand.got.of("again") == []
    assert stand.stats.num_running == 2
    stand.jobs.run(3)
    step_checked(stand.engine, stand.got)
    assert len(stand.got.of("beside")) == 7
    stand.serve()
    stand.check(AGAIN, beside)


def test_an_engine_that_only_waits_for_a_disk_does_not_spin(tmp_path: Path) -> None:
    stand = Stand(folder=tmp_path)
    stand.serve(FIRST, OTHER)
    woken: list[bool] = []
    stand.engine.wake_with(lambda: woken.append(True))
    stand.engine.handle(Submit(AGAIN))
    assert step_checked(stand.engine, stand.got) is not None
    steps = stand.stats.steps_total
    assert step_checked(stand.engine, stand.got) is None
    assert stand.stats.steps_total == steps
    assert stand.engine.has_work
    stand.jobs.run(1)
    assert woken == [True]
    assert step_checked(stand.engine, stand.got) is not None
    assert step_checked(stand.engine, stand.got) is None
    stand.serve()
    stand.check(AGAIN)


@pytest.mark.parametrize("num_read", [0, 2, 100])
def test_an_abort_while_blocks_come_back_leaks_nothing(tmp_path: Path, num_read: int) -> None:
    """Scenario 8."""
    stand = Stand(folder=tmp_path)
    stand.serve(FIRST, OTHER)
    stand.engine.handle(Submit(AGAIN))
    step_checked(stand.engine, stand.got)
    assert stand.stats.num_running == 1
    stand.jobs.run(num_read)
    stand.engine.handle(Cancel(request_id="again"))
    step_checked(stand.engine, stand.got)
    assert_idle(stand.engine)
    assert stand.got.reasons["again", 0] == "cancelled"
    late = conversation("late")
    stand.serve(late)
    stand.check(late)
    assert_idle(stand.engine)


@pytest.mark.parametrize("num_read", [0, 2])
def test_a_preemption_while_blocks_come_back_leaks_nothing(tmp_path: Path, num_read: int) -> None:
    """What decodes before it grows into its blocks: it waits again, its tokens and its place kept."""
    stand = Stand(folder=tmp_path)
    stand.serve(FIRST, OTHER)
    grows = make_request("grows", prompt(79, 11), 60, HOT)
    stand.engine.handle(Submit(grows))
    step_checked(stand.engine, stand.got)
    stand.engine.handle(Submit(AGAIN))
    step_checked(stand.engine, stand.got)
    assert stand.stats.num_running == 2
    stand.jobs.run(num_read)
    while not stand.stats.preemptions_total:
        assert step_checked(stand.engine, stand.got) is not None
    assert stand.stats.num_running == 1
    stand.serve()
    stand.check(grows, AGAIN)
    assert stand.got.finished["again"].num_preemptions > 0
    assert_idle(stand.engine)


@pytest.mark.parametrize("damaged", [0, 3, 8])
def test_a_damaged_file_is_computed_from_there_on(tmp_path: Path, damaged: int) -> None:
    stand = Stand(folder=tmp_path)
    stand.serve(FIRST, OTHER)
    stand.engine.handle(Submit(AGAIN))
    step_checked(stand.engine, stand.got)
    chain = PrefixChain(("", 0), 16)
    chain.extend(array("i", AGAIN.token_ids), 160)
    (path,) = tmp_path.glob(f"*/{chain.keys[damaged].digest.hex()}")
    path.write_bytes(path.read_bytes()[:-1])
    computed = stand.stats.prefill_tokens_total
    stand.serve()
    stand.check(AGAIN)
    assert stand.stats.lost_kv_blocks_total == 1
    assert stand.stats.prefill_tokens_total - computed == 160 - 16 * damaged


def test_an_end_is_not_kept_without_its_beginning(tmp_path: Path) -> None:
    """One block is evicted; what comes before it stays in the cache, and must be on disk all the same."""
    before = Stand(folder=tmp_path)
    before.serve(FIRST, conversation("small", 98, 5))
    assert before.files is not None
    before.files.close()
    stand = Stand(folder=tmp_path)
    stand.serve(AGAIN)
    stand.check(AGAIN)
    assert stand.stats.disk_restored_blocks_total == 9


def test_what_comes_before_is_kept_a_few_blocks_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.engine.kv_memory.MAX_AHEAD_PER_STEP", 3)
    stand = Stand(host_bytes=1 << 20)
    stand.serve(FIRST)
    stand.engine.handle(Submit(small := conversation("small", 98, 5)))
    step_checked(stand.engine, stand.got)
    assert stand.stats.host_offloaded_blocks_total == 1 + 3
    stand.serve()
    stand.check(small)


def test_blocks_on_disk_survive_a_restart(tmp_path: Path) -> None:
    before = Stand(folder=tmp_path)
    before.serve(FIRST, OTHER)
    assert before.files is not None
    before.files.close()
    stand = Stand(folder=tmp_path)
    stand.serve(AGAIN)
    stand.check(AGAIN)
    assert stand.stats.disk_restored_blocks_total > 0
    assert stand.stats.prefill_tokens_total < 160


def test_waiters_for_the_same_prefix_share_what_comes_back(tmp_path: Path) -> None:
    stand = Stand(folder=tmp_path, num_blocks=24)
    stand.serve(FIRST, conversation("other", 370, 5))
    twins = [make_request(f"twin{n}", [*prompt(160), 300 + n], 4, HOT) for n in range(3)]
    computed = stand.stats.prefill_tokens_total
    stand.serve(*twins)
    stand.check(*twins)
    assert stand.stats.disk_restored_blocks_total <= 10
    assert stand.stats.prefill_tokens_total - computed <= 3 * 17 + 16


@pytest.mark.parametrize(("token_ns", "restores"), [(10_000, False), (1_000_000, True)])
def test_blocks_come_back_only_if_that_is_quicker(token_ns: int, restores: bool) -> None:
    """The fake's blocks are 192 bytes; memory is made to take 1 ms for each, 16 tokens take 0.16 or 16 ms."""
    stand = Stand(host_bytes=1 << 20, step_ns=token_ns, write_ns=NS_PER_MS)
    stand.serve(FIRST, OTHER)
    for index in range(40):  # until the rate assumed of memory is forgotten
        stand.serve(conversation(f"c{index}"), conversation(f"d{index}", 240, 5))
    before = restored_blocks(stand)
    stand.serve(AGAIN)
    stand.check(AGAIN)
    assert (restored_blocks(stand) > before) == restores


def test_a_step_writes_a_bounded_number_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.engine.restores.MAX_BYTES_PER_STEP", 400)
    stand = Stand(host_bytes=1 << 20)
    stand.serve(FIRST, OTHER)
    stand.engine.handle(Submit(AGAIN))
    written = [stand.stats.host_restored_blocks_total]
    while stand.engine.has_work:
        assert step_checked(stand.engine, stand.got) is not None
        written.append(stand.stats.host_restored_blocks_total)
    assert max(after - before for before, after in pairwise(written)) == 3
    assert written[-1] > 6
    stand.check(AGAIN)


def test_a_mean_over_all_positions_is_computed_whole(stand: Stand) -> None:
    whole = make_request("mean", prompt(160), pooling="mean")
    stand.serve(FIRST, OTHER, whole)
    assert stand.got.finished["mean"].embedding == run_alone(whole).finished["mean"].embedding


def test_partitions_do_not_share_what_was_stored(stand: Stand) -> None:
    stand.serve(FIRST, OTHER)
    foreign = make_request("foreign", prompt(160), 4, HOT, salt="another tenant")
    computed = stand.stats.prefill_tokens_total
    stand.serve(foreign)
    assert stand.stats.prefill_tokens_total - computed == 160
    assert restored_blocks(stand) == 0


def test_a_running_set_of_conversations_larger_than_the_pool_repeats_exactly(stand: Stand) -> None:
    for turn in range(3):
        requests = [
            make_request(f"t{turn}c{number}", prompt(60 + 40 * turn, number), 6, HOT, session=f"c{number}")
            for number in range(8)
        ]
        stand.serve(*requests)
        stand.check(*requests)
    assert restored_blocks(stand) > 20
    assert_idle(stand.engine)


def test_a_run_is_idle_after_all(stand: Stand) -> None:
    run_until_idle(stand.engine, stand.got)
    assert_idle(stand.engine)
