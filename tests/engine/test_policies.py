"""The order of each policy for hand-made queues. What it leads to over time: test_scheduling_scenarios."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.clock import NS_PER_S
from headway.core.config import PolicyName, SchedulerConfig
from headway.engine.accounts import Accounts
from headway.engine.policies.policy import Candidate, Planned, Queue
from headway.engine.policies.slo import within_share
from headway.engine.policies.table import POLICIES
from support.hand_made_views import Seq, prefilling, view, waiting

NOW_NS = 100 * NS_PER_S


def queue_of(
    sequences: Sequence[Seq], *, accounts: Accounts | None = None, ns_per_token: float = 1e6
) -> Queue[Seq]:
    running = [s for s in sequences if s.table]
    return Queue(
        candidates=[Candidate(s, s) for s in sequences],
        view=view(running, [s for s in sequences if not s.table], accounts=accounts),
        limits=SchedulerConfig(),
        planned=Planned(),
        ns_per_token=ns_per_token,
        now_ns=NOW_NS,
    )


def order(policy: PolicyName, queue: Queue[Seq]) -> list[int]:
    return [sequence.order for sequence in POLICIES[policy].pick(queue)]


def waits(
    number: int,
    num_tokens: int = 10,
    *,
    due_s: float = 5,
    rank: int = 1,
    tenant: str = "",
    waited_s: float = 0,
    is_resuming: bool = False,
) -> Seq:
    return replace(
        waiting(number, num_tokens),
        rank=rank,
        tenant=tenant,
        arrival_ns=NOW_NS - int(waited_s * NS_PER_S),
        deadline_ns=NOW_NS + int(due_s * NS_PER_S),
        is_resuming=is_resuming,
    )


def busy_accounts(*tokens: int, tenants: dict[str, int] | None = None) -> Accounts:
    """All of the window was busy with these tokens of each class."""
    accounts = Accounts((50, 30, 20))
    for name in tenants or {}:
        accounts.enter(name)
    for rank, num_tokens in enumerate(tokens):
        accounts.charge(rank, "?", num_tokens, 0, NOW_NS)
    for name, num_tokens in (tenants or {}).items():
        accounts.charge(1, name, num_tokens, 0, NOW_NS)
    accounts.note_busy(6 * NS_PER_S, NOW_NS)
    return accounts


def test_fcfs_goes_by_arrival() -> None:
    assert order("fcfs", queue_of([waits(3), waits(1, rank=0), prefilling(2, 10)])) == [1, 2, 3]


def test_shortest_goes_by_max_tokens_then_class_then_arrival() -> None:
    queue = [
        replace(waits(1), max_tokens=90),
        replace(waits(2), max_tokens=9),
        replace(waits(3, rank=0), max_tokens=9),
        replace(waits(4), max_tokens=9),
    ]
    assert order("shortest", queue_of(queue)) == [3, 2, 4, 1]


def test_bucketed_starts_prompts_of_the_oldest_ones_length() -> None:
    queue = [waits(1, 400), waits(2, 60), waits(3, 300), waits(4, 512), waits(5, 256)]
    assert order("bucketed", queue_of(queue)) == [1, 3, 4]


def test_bucketed_cuts_a_batch_at_its_token_budget() -> None:
    assert len(order("bucketed", queue_of([waits(i, 2000) for i in range(9)]))) == 4
    assert len(order("bucketed", queue_of([waits(i, 60) for i in range(200)]))) == 128
    assert len(order("bucketed", queue_of([waits(i, 100_000) for i in range(9)]))) == 4


def test_bucketed_counts_what_runs_and_goes_on_with_what_has_started() -> None:
    running = [replace(prefilling(i, 2000), num_computed=500) for i in range(4)]
    assert order("bucketed", queue_of([*running, waits(5, 2000), waits(6, 60)])) == [0, 1, 2, 3]


def test_least_slack_goes_first_and_a_longer_prompt_has_less() -> None:
    queue = [waits(1, 10, due_s=5), waits(2, 10, due_s=3), waits(3, 4000, due_s=5)]
    assert order("slo", queue_of(queue)) == [3, 2, 1]


def test_who_is_late_goes_first_so_that_nobody_starves() -> None:
    assert order("slo", queue_of([waits(1, 10, due_s=0.1), waits(9, 10, due_s=-25)])) == [9, 1]


def test_a_preempted_stream_goes_before_prompts() -> None:
    assert order("slo", queue_of([waits(1, due_s=0.1), waits(9, due_s=-60, is_resuming=True)])) == [9, 1]


def test_better_classes_go_first_within_their_shares() -> None:
    queue = [waits(1, rank=2), waits(2, rank=1), waits(3, rank=0)]
    assert order("slo", queue_of(queue)) == [3, 2, 1]
    assert order("slo", queue_of(queue, accounts=busy_accounts(490, 300, 210))) == [3, 2, 1]
    assert order("slo", queue_of(queue, accounts=busy_accounts(600, 250, 150))) == [2, 1, 3]
    assert order("slo", queue_of(queue, accounts=busy_accounts(0, 700, 300))) == [3, 1, 2]


def test_an_engine_that_was_idle_sees_no_share_exceeded() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.charge(0, "", 1000, 0, NOW_NS)
    accounts.note_busy(NS_PER_S, NOW_NS)
    assert order("slo", queue_of([waits(1, rank=1), waits(2, rank=0)], accounts=accounts)) == [2, 1]


def test_what_the_step_has_planned_counts() -> None:
    queue = queue_of(
        [waits(i, rank=0) for i in range(3)] + [waits(9, rank=1)], accounts=busy_accounts(500, 300, 200)
    )
    taken = []
    for sequence in POLICIES["slo"].pick(queue):
        taken.append(sequence.order)
        queue.planned.count(sequence, 10)
    assert taken == [0, 9, 1, 2]


def test_the_tenant_served_least_goes_first_and_a_small_lead_counts_for_nothing() -> None:
    accounts = busy_accounts(tenants={"a": 5000, "b": 1000, "c": 2000})
    assert 1000 < accounts.lead(NOW_NS) < 4000
    queue = [waits(1, tenant="a", due_s=1), waits(2, tenant="b", due_s=9), waits(3, tenant="c", due_s=2)]
    assert order("slo", queue_of(queue, accounts=accounts)) == [3, 2, 1]


def test_only_a_class_within_its_share_takes_the_place_of_others() -> None:
    high = waits(1, rank=0)
    assert within_share(queue_of([high], accounts=busy_accounts(100, 500, 400)), high)
    assert not within_share(queue_of([high], accounts=busy_accounts(700, 200, 100)), high)
