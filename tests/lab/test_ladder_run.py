"""The ladder against synthetic servers whose knee is known, without a clock."""

import math
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Self

import pytest

from headway.core.errors import ConfigError
from headway.lab.drive import Offered
from headway.lab.exchange import Answer, Exchange, Failure, Stamps, StreamEvent
from headway.lab.ladder import Verdict
from headway.lab.ladder_rules import LadderRules
from headway.lab.ladder_run import LadderClimb, LadderRun, judge, rules_for
from headway.lab.sample import Sample
from headway.lab.slo import Slo

pytestmark = pytest.mark.anyio

MS = 1_000_000
S = 1_000 * MS


def exchange(due_ns: int, ttft_ns: float, *, sent_late_ns: int = 0, ok: bool = True) -> Exchange:
    came_ns = due_ns + round(ttft_ns)
    failure = None if ok else Failure(kind="refused", status=429, message="not now")
    events = (StreamEvent(at_ns=came_ns, kind="content", num_chars=1),) if ok else ()
    return Exchange(
        stamps=Stamps(
            intended_ns=due_ns,
            dispatched_ns=due_ns + sent_late_ns,
            written_ns=due_ns + sent_late_ns,
            first_byte_ns=came_ns,
            ended_ns=came_ns,
        ),
        answer=Answer(events=events, failure=failure),
    )


class Queue:
    """A loader of one server that serves first come, first served, each request in exponential time of a mean."""

    def __init__(self, mean_ms: float, *, lag_above: float = math.inf) -> None:
        self.see: Callable[[Sample], None] = lambda _: None
        self.num_probes = 0
        self.alive = True
        self._mean_ns = mean_ms * MS
        self._lag_above = lag_above
        self._random = Random("queue")
        self._stopped = False

    async def open(self, offsets_ns: Sequence[int]) -> Offered:
        self._stopped = False
        rate = len(offsets_ns) * S / (offsets_ns[-1] or 1)
        late_ns = 20 * MS if rate > self._lag_above else 0
        free_ns = 0.0
        served = []
        for offset_ns in offsets_ns:
            free_ns = max(free_ns, offset_ns) + self._random.expovariate(1 / self._mean_ns)
            served.append(exchange(offset_ns, max(free_ns - offset_ns, late_ns), sent_late_ns=late_ns))
        over: list[Exchange] = []
        for each in served:
            if self._stopped:
                break
            over.append(each)
            self.see(Sample.of(each))
        ended_ns = over[-1].stamps.ended_ns
        cut = sum(offset_ns <= ended_ns for offset_ns in offsets_ns[len(over) :])
        return Offered(exchanges=over, num_cut=cut, start_ns=0)

    async def closed(
        self, num_users: int, *, num_conversations: int | None, duration_ns: int | None
    ) -> Offered:
        assert (num_users, num_conversations, duration_ns) == (1, 1, None)
        self.num_probes += 1
        return Offered(exchanges=[exchange(0, MS, ok=self.alive)])

    def stop(self) -> None:
        self._stopped = True

    @property
    def num_running(self) -> int:
        return 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


async def climb(server: Queue, slo: Slo | None = None, **rules: float) -> LadderRun:
    ladder = LadderClimb(
        LadderRules(**rules),  # type: ignore[arg-type]
        slo,
        seed=1,
        step_ns=30 * S,
        lag_limit_ns=10 * MS,
    )
    server.see = ladder.see
    return await ladder.climb(server)


@pytest.mark.parametrize(("mean_ms", "slo_ms"), [(10.0, 200.0), (10.0, 100.0), (4.0, 60.0), (25.0, 480.0)])
async def test_the_knee_of_a_queue_is_found(mean_ms: float, slo_ms: float) -> None:
    """M/M/1: P95 of the time in the system is ln 20 / (service rate - rate)."""
    server = Queue(mean_ms)
    found = await climb(server, Slo(ttft_ns=round(slo_ms * MS)), floor_rate=1, start_rate=5)
    knee = 1_000 / mean_ms - math.log(20) * 1_000 / slo_ms
    assert found.finding is not None
    assert found.finding.verdict is Verdict.FOUND
    assert found.finding.kept is not None
    assert 0.5 * knee < found.finding.kept.rate < 1.1 * knee
    assert found.sentence().startswith("The highest rate that keeps the SLO")
    assert {step.measured.rate for step in found.reported} == {found.finding.kept.rate}
    assert len(found.reported) >= 2  # the edge is repeated


async def test_a_step_far_above_the_knee_is_stopped_once_it_is_decided() -> None:
    server = Queue(20.0)
    found = await climb(server, start_rate=500.0)
    first = found.steps[0]
    assert first.stopped
    assert first.measured.p95_ms == math.inf  # those that were running are endless
    assert first.measured.p95_high_ms == math.inf
    assert len(first.exchanges) < 500 * 30 / 4
    assert server.num_probes >= 1


async def test_a_client_that_cannot_keep_up_is_no_measurement() -> None:
    found = await climb(Queue(0.1, lag_above=100.0))
    assert found.client_was_the_limit
    assert found.finding is None
    assert "client itself" in found.sentence()
    assert [step.measured.rate for step in found.steps[-2:]] == [110.0, 110.0]


async def test_a_step_that_was_late_is_in_no_figure() -> None:
    found = await climb(Queue(0.1, lag_above=100.0))
    late = [step for step in found.steps if step.client_late]
    assert len(late) == 2
    assert all(step.lag_p99_ns > 10 * MS for step in late)


async def test_a_server_that_answers_no_more_ends_it() -> None:
    server = Queue(20.0)
    server.alive = False
    found = await climb(server, start_rate=500.0)
    assert len(found.steps) == 1
    assert found.finding is None
    assert "did not answer" in found.sentence()


async def test_conversations_of_several_turns_are_counted_by_their_requests() -> None:
    """Each offset is one conversation of ten requests: as many may be late as the P95 of all of them allows."""
    sooner = LadderClimb(LadderRules(start_rate=500.0), None, seed=1, step_ns=30 * S, lag_limit_ns=10 * MS)
    later = LadderClimb(
        LadderRules(start_rate=500.0), None, seed=1, step_ns=30 * S, lag_limit_ns=10 * MS, turns=10
    )
    never = LadderClimb(
        LadderRules(start_rate=500.0), None, seed=1, step_ns=30 * S, lag_limit_ns=10 * MS, turns=None
    )
    lengths = []
    for ladder in (sooner, later, never):
        server = Queue(20.0)
        server.see = ladder.see
        server.alive = False  # after the first step
        lengths.append(len((await ladder.climb(server)).steps[0].exchanges))
    assert lengths[0] < lengths[1] < lengths[2]


async def test_other_limits_of_the_slo_count_too() -> None:
    found = await climb(Queue(1.0), Slo(e2e_ns=1))
    assert found.finding is not None
    assert found.finding.verdict is Verdict.BELOW_FLOOR
    assert not any(step.measured.slo_kept for step in found.steps)


def test_failures_are_endless() -> None:
    over = [exchange(0, 5 * MS) for _ in range(90)] + [exchange(0, MS, ok=False) for _ in range(10)]
    found = judge(10.0, Offered(exchanges=over), None)
    assert found.p95_ms == math.inf


def test_what_was_cut_is_endless() -> None:
    over = [exchange(0, 5 * MS) for _ in range(90)]
    assert judge(10.0, Offered(exchanges=over), None).p95_ms == 5
    assert judge(10.0, Offered(exchanges=over, num_cut=10), None).p95_ms == math.inf


def test_too_few_requests_keep_nothing() -> None:
    assert judge(10.0, Offered(exchanges=[exchange(0, 5 * MS)]), None).p95_high_ms == math.inf
    assert judge(10.0, Offered(), None).p95_high_ms == math.inf


def test_the_slo_gives_the_limits() -> None:
    rules, others = rules_for(LadderRules(), Slo(ttft_ns=500 * MS, itl_ns=50 * MS))
    assert (rules.high_ms, rules.low_ms) == (500, 300)
    assert others == Slo(itl_ns=50 * MS)
    assert rules_for(LadderRules(), Slo(ttft_ns=500 * MS))[1] is None
    assert rules_for(LadderRules(), None) == (LadderRules(), None)
    with pytest.raises(ConfigError, match="one of them"):
        rules_for(LadderRules(high_ms=300), Slo(ttft_ns=500 * MS))
