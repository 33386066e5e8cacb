"""Predictions and refusals for hand-made views. Whether they come true: test_scheduling_scenarios."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headway.core.clock import NS_PER_S
from headway.core.config import SchedulerConfig
from headway.engine.accounts import Accounts
from headway.engine.promise import STRETCH, Forecast, deadline_ns, forecast, lateness, own_ns
from headway.engine.step_time import Load, StepTime
from support.hand_made_views import Seq, decoding, view, waiting

NOW_NS = 50 * NS_PER_S
LIMITS = SchedulerConfig(itl_target_s=None, max_prefill_tokens=100, max_num_seqs=4)


def machine() -> StepTime:
    """A millisecond a prompt token, nothing else."""
    learnt = StepTime()
    for _ in range(50):
        for num_tokens in (50, 100):
            learnt.observe(Load(num_tokens, 0, 0, 0), num_tokens * 1_000_000)
    return learnt


def new(num_tokens: int = 100, *, rank: int = 1, tenant: str = "me", due_s: float = 5) -> Seq:
    due_ns = NOW_NS + int(due_s * NS_PER_S)
    return replace(waiting(99, num_tokens), rank=rank, tenant=tenant, deadline_ns=due_ns)


def before(number: int, num_tokens: int, *, rank: int = 1, tenant: str = "me", due_s: float = 1) -> Seq:
    return replace(new(num_tokens, rank=rank, tenant=tenant, due_s=due_s), order=number)


def wait_s(
    asked: Seq, running: Sequence[Seq] = (), queue: Sequence[Seq] = (), accounts: Accounts | None = None
) -> float:
    of = view(running, queue, step_time=machine(), accounts=accounts)
    return forecast(asked, of, LIMITS, 128, NOW_NS).wait_ns / NS_PER_S


def test_nothing_is_predicted_before_a_step_was_timed() -> None:
    unknown = view(queue=[before(1, 1000)])
    assert forecast(new(), unknown, LIMITS, 128, NOW_NS) == Forecast(0, 0)
    assert own_ns(1000, unknown, LIMITS) == 0


def test_it_waits_for_its_tenants_work_that_is_due_before() -> None:
    assert wait_s(new()) == pytest.approx(0, abs=1e-3)
    assert wait_s(new(), queue=[before(1, 700)]) == pytest.approx(0.7, rel=0.05)
    assert wait_s(new(), queue=[before(1, 700, due_s=60)]) == pytest.approx(0, abs=1e-3)


def test_other_tenants_have_as_much_before_it_as_its_own() -> None:
    crowd = [before(1, 3000, tenant="crowd")]
    assert wait_s(new(100), queue=crowd) == pytest.approx(0.1, rel=0.05)
    assert wait_s(new(100), queue=[*crowd, before(2, 500)]) == pytest.approx(0.5 + 0.6, rel=0.05)


def test_better_classes_go_before_as_far_as_their_shares_allow_and_worse_ones_do_not() -> None:
    assert wait_s(new(rank=0), queue=[before(1, 3000, rank=2)]) == pytest.approx(0, abs=1e-3)
    assert wait_s(new(rank=1), queue=[before(1, 40, rank=0)]) == pytest.approx(0.04, rel=0.05)
    assert wait_s(new(rank=2), queue=[before(1, 3000, rank=0)]) == pytest.approx(0.25, rel=0.05)


def test_what_better_classes_took_lately_they_will_take_again() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.charge(0, "", 500, 0, NOW_NS)
    accounts.charge(1, "", 500, 0, NOW_NS)
    accounts.note_busy(6 * NS_PER_S, NOW_NS)
    assert wait_s(new(rank=1), queue=[before(1, 900)], accounts=accounts) == pytest.approx(1.9, rel=0.05)


def test_tenants_served_less_leave_at_least_an_even_part() -> None:
    accounts = Accounts((50, 30, 20))
    for tenant in ("me", "a", "b", "c"):
        accounts.enter(tenant)
    for tenant, num_tokens in (("me", 9000), ("a", 1000), ("b", 1000), ("c", 1000)):
        accounts.charge(1, tenant, num_tokens, 0, NOW_NS)
    accounts.note_busy(20 * NS_PER_S, NOW_NS)
    assert wait_s(new(100), queue=[before(1, 900)], accounts=accounts) == pytest.approx(
        1000 / 0.75 / 1000 - 0.1, rel=0.05
    )
    for tenant in ("a", "b", "c"):
        accounts.charge(1, tenant, 2000, 0, NOW_NS)
    accounts.charge(1, "me", 9000, 0, NOW_NS)
    accounts.charge(1, "a", 60_000, 0, NOW_NS)  # it is ahead now and overtakes nobody
    assert wait_s(new(100), queue=[before(1, 900)], accounts=accounts) < 1.2


def test_without_a_slot_it_waits_for_ends() -> None:
    running = [replace(decoding(i, 6, (i,)), max_tokens=1000) for i in range(4)]
    learnt = machine()
    learnt.observe(Load(0, 4, 20, 0), 10_000_000)
    of = view(running, step_time=learnt)
    wait_ns = forecast(new(), of, LIMITS, 128, NOW_NS).wait_ns
    assert wait_ns == pytest.approx((128 / 4 + 1) * learnt.of(Load(0, 4, 20, 0)), rel=0.05)
    for_high_ns = forecast(new(rank=0), of, LIMITS, 128, NOW_NS).wait_ns  # it takes the place of one of them
    assert for_high_ns < wait_ns / 10


def test_a_burst_will_fill_all_slots_before_it_waits_for_ends() -> None:
    learnt = machine()
    learnt.observe(Load(0, 4, 20, 0), 10_000_000)
    running = [replace(decoding(0, 6, (0,)), max_tokens=1000)]
    queue = [replace(before(i, 1, due_s=60), max_tokens=1000) for i in range(1, 8)]
    of = view(running, queue, step_time=learnt)
    step_ns = learnt.of(Load(0, 4, 20, 0))
    missing = 1 + 7 + 1 - 4
    wait_ns = forecast(new(), of, LIMITS, 128, NOW_NS).wait_ns
    assert wait_ns == pytest.approx(missing * 128 / 4 * step_ns, rel=0.1)
    brief = [[replace(s, max_tokens=80) for s in part] for part in (running, queue)]
    wait_ns = forecast(new(), view(*brief, step_time=learnt), LIMITS, 128, NOW_NS).wait_ns
    assert wait_ns == pytest.approx(missing * 80 / 4 * step_ns, rel=0.1)


def test_a_deadline_is_what_was_asked_for_else_the_classes() -> None:
    assert deadline_ns(250, 1, 1000, 0.0, LIMITS) == 1250
    due = [deadline_ns(None, rank, 0, 0.0, LIMITS) / NS_PER_S for rank in range(3)]
    assert due == [LIMITS.high_ttft_s, LIMITS.normal_ttft_s, LIMITS.low_ttft_s]
    assert deadline_ns(None, 0, 0, 10.0 * NS_PER_S, LIMITS) == STRETCH * 10 * NS_PER_S


def test_refused_is_what_would_come_too_late() -> None:
    assert lateness(new(due_s=5), Forecast(3e9, 1.9e9), 1.0, 1.9e9, NOW_NS) is None
    late = lateness(new(due_s=5), Forecast(3.4e9, 1.9e9), 1.0, 1.9e9, NOW_NS)
    assert late is not None
    assert late.retry_after_s == pytest.approx(3.4)
    assert "5.30 s" in late.message
    assert "idle" not in late.message


def test_what_cannot_be_met_at_all_says_so() -> None:
    hopeless = lateness(new(due_s=1), Forecast(0, 1.9e9), 1.0, 1.9e9, NOW_NS)
    assert hopeless is not None
    assert "even on an idle server" in hopeless.message
    tight = lateness(new(due_s=0.0008), Forecast(0, 4.2e6), 1.0, 4.2e6, NOW_NS)
    assert tight is not None
    assert "takes 4.2 ms even on an idle server, and is due in 0.8 ms" in tight.message
    passed = lateness(new(due_s=0), Forecast(0, 0), 1.0, 0, NOW_NS)
    assert passed is not None
    assert "had passed" in passed.message
    assert lateness(new(due_s=0.001), Forecast(0, 0), 1.0, 0, NOW_NS) is None  # nothing is known: let it try
