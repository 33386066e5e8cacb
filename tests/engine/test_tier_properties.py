"""Any mix of conversations in little memory, files being read and written whenever they like.

Answers are those of a request alone, blocks and conversations add up after each step, everything comes to rest.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, ReleaseSession, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.runner.fake import FakeRunner
from support.engine_on_fake import Received, assert_idle, make_engine, make_request, run_alone, step_checked
from support.kv_jobs import ManualJobs
from support.kv_tiers import make_tiers

BLOCK_SIZE = 4
BEGINNINGS = ((7,) * 9, (7,) * 24, (3, 4, 5, 6) * 6, (8, 9) * 12, tuple(range(20, 44)))


@dataclass(frozen=True)
class Arrival:
    """A request, what happens before it, and when it is cancelled (after so many steps)."""

    request: Request
    steps_before: int
    jobs_before: int
    releases: str | None
    cancel_after: int | None


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    drawn = []
    for number in range(draw(st.integers(3, 10))):
        tail = draw(st.lists(st.integers(0, 2), max_size=6))
        drawn.append(
            Arrival(
                request=make_request(
                    f"r{number}",
                    [*draw(st.sampled_from(BEGINNINGS)), *tail],
                    draw(st.sampled_from([12, 6, 1])),
                    SamplingParams(temperature=1.0, seed=draw(st.integers(0, 1))),
                    n=draw(st.sampled_from([1, 1, 2])),
                    session=draw(st.sampled_from([None, "a", "b"])),
                    salt=draw(st.sampled_from(["", "", "other"])),
                ),
                steps_before=draw(st.sampled_from([0, 2, 30, 60])),
                jobs_before=draw(st.sampled_from([100, 1, 0])),
                releases=draw(st.sampled_from([None, None, None, "a", "b"])),
                cancel_after=draw(st.one_of(st.none(), st.integers(0, 12))),
            )
        )
    return drawn


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    work=arrivals(),
    host_blocks=st.sampled_from([100, 2, 0]),
    disk_blocks=st.sampled_from([100, 3, 0]),
    num_blocks=st.integers(11, 16),
    damage=st.integers(0, 9),
    limits=st.builds(
        SchedulerConfig,
        policy=st.sampled_from(["slo", "fcfs"]),
        max_num_seqs=st.integers(1, 6),
        max_prefill_tokens=st.integers(1, 24),
    ),
)
def test_any_mix_ends_well(
    work: list[Arrival],
    host_blocks: int,
    disk_blocks: int,
    num_blocks: int,
    damage: int,
    limits: SchedulerConfig,
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        jobs = ManualJobs(max_writes=6)
        tiers, files = make_tiers(
            jobs,
            host_bytes=host_blocks * 100,
            folder=folder if disk_blocks else None,
            disk_bytes=disk_blocks * 150,
        )
        runner = FakeRunner(num_blocks=num_blocks, block_size=BLOCK_SIZE)
        engine = make_engine(runner, limits=limits, tiers=tiers)
        got = Received()
        cancels: list[tuple[int, str]] = []
        steps = 0

        def step() -> bool:
            nonlocal steps
            for due, request_id in cancels:
                if due == steps:
                    engine.handle(Cancel(request_id=request_id))
            steps += 1
            return step_checked(engine, got) is not None

        for number, arrival in enumerate(work):
            for _ in range(arrival.steps_before):
                step()
                jobs.run(arrival.jobs_before)
            if number == damage:
                for path in sorted(folder.glob("kv-*/*"))[:4]:
                    path.write_bytes(path.read_bytes()[:-1] + b"?")
            if arrival.releases is not None:
                engine.handle(ReleaseSession(release_id=0, tenant="", session=arrival.releases))
            engine.handle(Submit(arrival.request))
            if arrival.cancel_after is not None:
                cancels.append((steps + arrival.cancel_after, arrival.request.request_id))
        while engine.has_work:
            assert steps < 3_000, "no progress"
            if not step() and engine.has_work and not jobs.run(1):
                assert any(due >= steps for due, _ in cancels), "the engine waits for nothing"
        jobs.run()
        stats = engine.statistics()
        event(f"restored from memory: {stats.host_restored_blocks_total > 0}")
        event(f"restored from disk: {stats.disk_restored_blocks_total > 0}")
        event(f"lost: {stats.lost_kv_blocks_total > 0}")
        event(f"preempted: {stats.preemptions_total > 0}")
        assert_idle(engine)
        assert stats.host_kv_bytes <= host_blocks * 100
        assert stats.disk_kv_bytes <= disk_blocks * 150
        assert stats.disk_kv_bytes == sum(path.stat().st_size for path in folder.glob("kv-*/*"))
        if files is not None:
            files.close()
        for arrival in work:
            check_against_alone(arrival.request, got)


def check_against_alone(request: Request, got: Received) -> None:
    """What was delivered is what the request gets alone, or the beginning of it if it was cancelled."""
    alone = run_alone(request, block_size=BLOCK_SIZE)
    for choice in range(request.n):
        tokens, expected = got.of(request.request_id, choice), alone.of(request.request_id, choice)
        cancelled = got.reasons[request.request_id, choice] == "cancelled"
        assert tokens == (expected[: len(tokens)] if cancelled else expected)
