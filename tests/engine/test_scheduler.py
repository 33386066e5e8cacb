"""The plan for hand-made views. What plans lead to over many steps: test_engine_scenarios, test_engine_properties."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.core.clock import NS_PER_MS
from headway.core.config import SchedulerConfig
from headway.engine.acceptance import Odds
from headway.engine.accounts import HIGH, LOW, Accounts
from headway.engine.drafts import Draft
from headway.engine.policies.policy import by_arrival
from headway.engine.prefixes import lenders
from headway.engine.scheduler import plan
from headway.engine.step_cost import StepCost
from headway.engine.view import View
from support.hand_made_views import Seq, decoding, prefilling, view, waiting

SURE = Odds(0.97, 0.97)
FLAT = StepCost(1.0, 0.01)
"""A step bound by memory."""


def sure(length: int = 8) -> Draft:
    return Draft(tuple(range(length)), SURE)


def drafted(of: View[Seq], using: SchedulerConfig | None = None) -> dict[int, int]:
    """Return how many draft tokens each sequence carries, by its order; 0 = none."""
    return {chunk.sequence.order: len(chunk.draft) for chunk in plan(of, using or limits(), 0).chunks}


def limits(max_prefill_tokens: int = 8, max_num_seqs: int = 8) -> SchedulerConfig:
    return SchedulerConfig(max_prefill_tokens=max_prefill_tokens, max_num_seqs=max_num_seqs)


def chunks(of: View[Seq], using: SchedulerConfig) -> list[tuple[int, int, bool]]:
    return [(chunk.sequence.order, chunk.num_tokens, chunk.draws) for chunk in plan(of, using, 0).chunks]


def test_nothing_to_do_is_an_empty_plan() -> None:
    empty = plan(view(), limits(), 0)
    assert (list(empty.chunks), list(empty.admitted), list(empty.preempted)) == ([], [], [])


def test_decoding_comes_first_and_does_not_use_the_prefill_budget() -> None:
    state = view([prefilling(0, 20), decoding(1, 6, (1, 2)), decoding(2, 6, (3, 4))])
    assert chunks(state, limits(8)) == [(1, 1, True), (2, 1, True), (0, 8, False)]


def test_the_budget_is_shared_in_order_of_arrival() -> None:
    state = view([prefilling(1, 20), prefilling(0, 20, 15)], [waiting(2, 9)])
    assert chunks(state, limits(16)) == [(0, 5, True), (1, 11, False)]
    assert chunks(state, limits(30)) == [(0, 5, True), (1, 20, True), (2, 5, False)]


def test_admission_stops_at_the_number_of_sequences() -> None:
    state = view([decoding(0, 6, (1, 2))], [waiting(1, 2), waiting(2, 2), waiting(3, 2)])
    assert [admission.sequence.order for admission in plan(state, limits(100, 3), 0).admitted] == [1, 2]


def test_who_waits_for_memory_is_not_overtaken() -> None:
    state = view(queue=[waiting(0, 4), waiting(1, 20), waiting(2, 4)], num_available=5)
    assert [admission.sequence.order for admission in plan(state, limits(100), 0).admitted] == [0]


def test_a_start_needs_blocks_for_all_tokens_at_once() -> None:
    assert not plan(view(queue=[waiting(0, 40)], num_available=9), limits(4), 0).admitted
    assert plan(view(queue=[waiting(0, 40)], num_available=10), limits(4), 0).admitted


def test_cached_blocks_are_shared_and_their_tokens_not_computed() -> None:
    state = view(queue=[waiting(0, 10)], matches={0: (7, 8)})
    (admission,) = plan(state, limits(), 0).admitted
    assert admission.shared == (7, 8)
    assert chunks(state, limits()) == [(0, 2, True)]


def test_a_cached_block_that_nobody_holds_counts_as_taken() -> None:
    held, unheld = {7: 1, 8: 1}, {7: 1, 8: 0}
    tight = {"queue": [waiting(0, 10)], "matches": {0: (7, 8)}, "num_available": 1}
    assert plan(view(references=held, **tight), limits(), 0).admitted  # type: ignore[arg-type]
    assert not plan(view(references=unheld, **tight), limits(), 0).admitted  # type: ignore[arg-type]


def test_the_latest_arrival_is_preempted_when_decoding_needs_a_block() -> None:
    state = view([decoding(0, 5, (1,)), decoding(1, 5, (2, 3)), prefilling(2, 8)], num_available=0)
    result = plan(state, limits(), 0)
    assert [sequence.order for sequence in result.preempted] == [2]
    assert [chunk.sequence.order for chunk in result.chunks] == [0, 1]


def test_it_preempts_itself_when_it_is_the_latest() -> None:
    state = view([decoding(0, 6, (1, 2)), decoding(1, 5, (3,))], num_available=0)
    result = plan(state, limits(), 0)
    assert [sequence.order for sequence in result.preempted] == [1]
    assert [chunk.sequence.order for chunk in result.chunks] == [0]


def test_preempting_counts_only_blocks_that_nobody_else_holds() -> None:
    running = [decoding(0, 9, (1, 2)), decoding(1, 7, (1, 3)), decoding(2, 7, (1, 4))]
    result = plan(view(running, num_available=0), limits(), 0)
    assert [sequence.order for sequence in result.preempted] == [2]
    shared = [decoding(0, 9, (1, 2)), decoding(1, 7, (5, 6)), decoding(2, 7, (5, 6))]
    result = plan(view(shared, num_available=0), limits(), 0)
    assert [sequence.order for sequence in result.preempted] == [2, 1]
    assert [chunk.sequence.order for chunk in result.chunks] == [0]


def test_nobody_starts_in_a_step_that_preempts() -> None:
    state = view([decoding(0, 5, (1,)), decoding(1, 6, (2, 3))], [waiting(2, 1)], num_available=0)
    result = plan(state, limits(), 0)
    assert result.preempted
    assert not result.admitted


def test_a_block_that_is_being_computed_is_waited_for_and_others_pass() -> None:
    state = view([prefilling(0, 40, 4)], [waiting(1, 40, prompt_id=0), waiting(2, 3)], matches={1: (0,)})
    result = plan(state, limits(100), 0)
    assert [admission.sequence.order for admission in result.admitted] == [2]


def test_equal_prompts_that_arrive_together_start_one_after_another() -> None:
    state = view(queue=[waiting(0, 10), waiting(1, 10, prompt_id=0), waiting(2, 10, prompt_id=0)])
    assert [admission.sequence.order for admission in plan(state, limits(100), 0).admitted] == [0]


def test_prompts_without_a_whole_shareable_block_do_not_wait() -> None:
    state = view(queue=[waiting(0, 4), waiting(1, 4, prompt_id=0)])
    assert [admission.sequence.order for admission in plan(state, limits(100), 0).admitted] == [0, 1]


def test_who_has_the_computed_blocks_goes_on_though_the_other_still_computes() -> None:
    state = view([prefilling(0, 40, 8)], [waiting(1, 10, prompt_id=0)], matches={1: (0, 1)})
    assert [admission.sequence.order for admission in plan(state, limits(100), 0).admitted] == [1]


def test_nobody_waits_for_blocks_that_will_not_be_shared() -> None:
    state = view([prefilling(0, 40, shares=False)], [waiting(1, 40, prompt_id=0)])
    assert [admission.sequence.order for admission in plan(state, limits(100), 0).admitted] == [1]


def test_the_computing_one_inherits_the_waiters_urgency() -> None:
    state = view([prefilling(2, 40), prefilling(5, 40)], [waiting(1, 40, prompt_id=5)])
    assert chunks(state, limits(8)) == [(5, 8, False)]
    without = view([prefilling(2, 40), prefilling(5, 40)], [waiting(6, 40)])
    assert chunks(without, limits(8)) == [(2, 8, False)]


def test_inherited_urgency_protects_from_preemption() -> None:
    running = [decoding(2, 5, (1,)), decoding(3, 5, (2, 3)), prefilling(4, 8)]
    result = plan(view(running, [waiting(1, 8, prompt_id=4)], num_available=0), limits(), 0)
    assert [sequence.order for sequence in result.preempted] == [3]


def test_planning_twice_gives_the_same() -> None:
    state = view([decoding(0, 5, (1,)), prefilling(1, 9)], [waiting(2, 3), waiting(3, 50)], num_available=3)
    assert plan(state, limits(), 0) == plan(state, limits(), 0)


@pytest.mark.parametrize("budget", [1, 3, 8])
def test_a_step_never_carries_more_prompt_than_the_budget(budget: int) -> None:
    state = view([prefilling(0, 20, 18), prefilling(1, 9)], [waiting(2, 3), waiting(3, 3)])
    assert sum(num_tokens for _, num_tokens, _ in chunks(state, limits(budget))) == budget


def test_waiters_unrelated_to_what_is_computed_need_no_look_at_the_cache() -> None:
    """With a thousand waiting, one look each, block by block, would take longer than a small model's step."""
    looks: list[int] = []

    def match(sequence: Seq) -> Sequence[int]:
        looks.append(sequence.order)
        return ()

    queue = [waiting(order, 40) for order in range(5)]
    state = replace(view([prefilling(9, 40), prefilling(10, 40, prompt_id=4)], queue), match=match)
    assert lenders(state, by_arrival) == {10: queue[4]}
    assert looks == [4]


def test_a_decoding_sequence_carries_its_draft_as_far_as_it_is_worth_a_row() -> None:
    running = [decoding(0, 6, (1, 2, 3, 4), 20)]
    (chunk,) = plan(view(running, drafts={0: sure()}, cost=FLAT), limits(), 0).chunks
    assert chunk == (running[0], 1, True, tuple(range(8)))
    assert drafted(view(running, drafts={0: sure()}, cost=StepCost(0.0, 1.0))) == {0: 0}
    lengths = [
        drafted(view(running, drafts={0: Draft((7,) * 8, Odds(p, p))}, cost=StepCost(1.0, 0.1)))[0]
        for p in (0.05, 0.3, 0.6, 0.9)
    ]
    assert lengths == sorted(set(lengths))
    assert lengths[0] == 0


def test_the_limits_of_the_draft() -> None:
    of = view(
        [decoding(0, 6, (1, 2, 3, 4), 20), decoding(1, 6, (5, 6, 7, 8), 2)],
        drafts={0: sure(), 1: sure()},
        cost=FLAT,
    )
    assert drafted(of) == {0: 8, 1: 2}
    assert drafted(of, SchedulerConfig(max_draft_tokens=3)) == {0: 3, 1: 2}
    assert drafted(of, SchedulerConfig(max_draft_tokens=0)) == {0: 0, 1: 0}


def test_the_batch_shortens_drafts_and_ends_them() -> None:
    cost = StepCost(1.0, 0.1)
    longest = []
    for count in (1, 4, 8, 17, 40):
        running = [decoding(order, 6, (1, 2, 3, 4), 20) for order in range(count)]
        longest.append(
            max(drafted(view(running, drafts=dict.fromkeys(range(count), sure()), cost=cost)).values())
        )
    assert longest == sorted(longest, reverse=True)
    assert longest[0] == 8
    assert longest[-1] == 0


def test_a_step_bound_by_computing_is_not_even_asked_for_drafts() -> None:
    asked: list[tuple[int, int]] = []

    def draft(sequence: Seq, max_tokens: int) -> Draft:
        asked.append((sequence.order, max_tokens))
        return sure()

    running = [decoding(order, 6, (1, 2, 3, 4), 20) for order in range(9)]
    plan(replace(view(running, cost=StepCost(1.0, 1.0)), draft=draft), limits(), 0)
    assert asked == []
    plan(replace(view(running, cost=FLAT), draft=draft), limits(), 0)
    assert asked == [(order, 8) for order in range(9)]


def test_one_draft_does_not_slow_down_a_crowd() -> None:
    running = [decoding(order, 6, (1, 2, 3, 4), 20) for order in range(8)]
    cost = StepCost(4.0, 1.0)
    alone, for_all = {0: sure()}, dict.fromkeys(range(8), sure())
    assert drafted(view(running, drafts=alone, cost=cost))[0] <= 1
    assert drafted(view(running, drafts=for_all, cost=cost))[0] > 1


def test_there_are_no_drafts_beside_a_prompt_or_a_preemption() -> None:
    running = [decoding(0, 6, (1, 2, 3, 4), 20)]
    assert drafted(view([*running, prefilling(1, 20)], drafts={0: sure()}, cost=FLAT)) == {0: 0, 1: 0}
    assert drafted(view(running, [waiting(1, 3)], drafts={0: sure()}, cost=FLAT)) == {0: 0, 1: 0}
    short = [decoding(0, 5, (1,), 20), decoding(1, 6, (2, 3), 20)]
    assert drafted(view(short, num_available=0, drafts={0: sure()}, cost=FLAT)) == {0: 0}


@pytest.mark.parametrize(("num_available", "carried"), [(0, 2), (2, 2), (3, 6), (4, 8), (100, 8)])
def test_drafts_leave_a_block_for_everybody(num_available: int, carried: int) -> None:
    """Ten tokens in three blocks leave two slots; the other's draft has slots enough."""
    running = [decoding(0, 10, (1, 2, 3), 20), decoding(1, 6, (4, 5, 6, 7), 20)]
    of = view(running, num_available=num_available, drafts={0: sure(), 1: sure()}, cost=FLAT)
    assert drafted(of) == {0: carried, 1: 8}


def test_drafts_take_no_block_from_who_waits() -> None:
    running = [decoding(0, 10, (1, 2, 3), 20)]
    state = view(running, [waiting(1, 800)], num_available=100, drafts={0: sure()}, cost=FLAT)
    assert drafted(state) == {0: 2}


def test_drafts_count_the_block_that_decoding_takes_in_this_step() -> None:
    running = [decoding(0, 9, (1, 2), 20)]
    assert drafted(view(running, num_available=1, drafts={0: sure()}, cost=FLAT)) == {0: 3}
    assert drafted(view(running, num_available=2, drafts={0: sure()}, cost=FLAT)) == {0: 3}
    assert drafted(view(running, num_available=3, drafts={0: sure()}, cost=FLAT)) == {0: 7}


# ---- who pauses for a prompt of high ----


def of_class(sequence: Seq, rank: int, **change: Any) -> Seq:
    return replace(sequence, rank=rank, **change)


CROWD = (
    of_class(decoding(0, 6, (1, 2)), LOW, last_token_ns=10**9),
    decoding(1, 6, (3, 4)),
    of_class(decoding(2, 6, (5, 6)), HIGH),
)


def advanced(of: View[Seq], at_ms: int = 1_000) -> list[int]:
    return [chunk.sequence.order for chunk in plan(of, limits(8), at_ms * NS_PER_MS).chunks]


def test_low_stands_still_while_a_prompt_of_high_is_read() -> None:
    assert advanced(view(CROWD, [of_class(waiting(9, 20), HIGH)])) == [2, 1, 9]
    assert advanced(view([*CROWD, of_class(prefilling(9, 20), HIGH)])) == [2, 1, 9]
    assert advanced(view(CROWD, [waiting(9, 20)])) == [2, 1, 0, 9]
    assert advanced(view(CROWD)) == [2, 1, 0]


def test_low_does_not_stand_still_for_long() -> None:
    urgent = [of_class(waiting(9, 20), HIGH)]
    assert advanced(view(CROWD, urgent), 1_149) == [2, 1, 9]
    assert advanced(view(CROWD, urgent), 1_150) == [2, 1, 0, 9]


def test_a_stream_that_named_its_interval_does_not_stand_still() -> None:
    named = of_class(CROWD[0], LOW, itl_target_ns=80 * NS_PER_MS)
    assert advanced(view([named, *CROWD[1:]], [of_class(waiting(9, 20), HIGH)])) == [2, 1, 0, 9]


def test_nobody_stands_still_for_a_prompt_that_is_not_read() -> None:
    coming_back = of_class(prefilling(9, 20), HIGH, is_restoring=True)
    assert advanced(view([*CROWD, coming_back])) == [2, 1, 0]
    too_large = of_class(waiting(9, 4 * 100), HIGH)
    assert advanced(view(CROWD, [too_large], num_available=3)) == [2, 1, 0]


def test_nobody_stands_still_for_high_beyond_its_share() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.charge(HIGH, "", 1_000, 0, 10**9)
    accounts.note_busy(6 * 10**9, 10**9)
    assert advanced(view(CROWD, [of_class(waiting(9, 20), HIGH)], accounts=accounts)) == [2, 1, 0, 9]


def test_low_stands_still_for_the_prompt_of_another_class_that_high_waits_for() -> None:
    same = prefilling(8, 20, prompt_id=7)
    assert advanced(view([*CROWD, same], [of_class(waiting(9, 20, prompt_id=7), HIGH)])) == [2, 1, 8]
