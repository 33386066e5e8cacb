from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.core.clock import ManualClock
from headway.runner.fake import DrawnRow, FakeRunner
from headway.runner.step import OutputKind, SamplingBatch, Step


def sampling(positions: Sequence[int], **changed: Any) -> SamplingBatch:
    count = len(positions)
    batch = SamplingBatch(
        temperature=array("f", [0.0] * count),
        top_k=array("i", [0] * count),
        top_p=array("f", [1.0] * count),
        min_p=array("f", [0.0] * count),
        repetition_penalty=array("f", [1.0] * count),
        presence_penalty=array("f", [0.0] * count),
        frequency_penalty=array("f", [0.0] * count),
        seeds=array("Q", [0] * count),
        choices=array("i", [0] * count),
        positions=array("i", positions),
        num_logprobs=array("i", [-1] * count),
        history_starts=array("i", [0] * (count + 1)),
        history=array("i"),
        history_prompt_lens=array("i", [0] * count),
        bias_starts=array("i", [0] * (count + 1)),
        bias_ids=array("i"),
        bias_values=array("f"),
        mask_rows=array("i", [-1] * count),
        masks=array("I"),
    )
    return replace(batch, **changed)


def one(tokens: Sequence[int], context: int = 0, blocks: Sequence[int] = (0, 1, 2), **changed: Any) -> Step:
    """Return a step of one sequence that draws after its last token."""
    step = Step(
        tokens=array("i", tokens),
        positions=array("i", range(context, context + len(tokens))),
        sequence_starts=array("i", [0, len(tokens)]),
        context_lens=array("i", [context]),
        block_table=array("i", blocks),
        block_table_starts=array("i", [0, len(blocks)]),
        adapter_ids=array("i", [0]),
        output_rows=array("i", [len(tokens) - 1]),
        output_kinds=array("i", [OutputKind.LOGITS]),
        sampling=sampling([context + len(tokens)]),
    )
    return replace(step, **changed)


def draw(runner: FakeRunner, step: Step) -> int:
    return runner.execute(step).tokens[0]


def small() -> FakeRunner:
    return FakeRunner(num_blocks=8, block_size=4, vocab_size=997, max_context=24)


def test_chunks_do_not_change_the_token() -> None:
    whole = draw(small(), one([1, 2, 3, 4, 5, 6]))
    runner = small()
    draw(runner, one([1, 2, 3, 4]))
    assert draw(runner, one([5, 6], context=4)) == whole


def test_which_blocks_are_used_does_not_change_the_token() -> None:
    assert draw(small(), one([1, 2, 3, 4, 5])) == draw(small(), one([1, 2, 3, 4, 5], blocks=(7, 3)))


def test_any_token_of_the_context_changes_the_token() -> None:
    tokens = {draw(small(), one([1, 2, 3, 4, 5, first])) for first in range(20)}
    assert len(tokens) > 15
    assert draw(small(), one([1, 2, 3, 4, 5])) != draw(small(), one([9, 2, 3, 4, 5]))


def test_a_wrong_block_table_changes_the_token() -> None:
    runner = small()
    right = draw(runner, one([1, 2, 3, 4, 5]))
    draw(runner, one([9, 9, 9, 9], blocks=(5,)))
    runner.copy_block(1, 6)
    assert draw(runner, one([5], context=4, blocks=(0, 6))) == right
    assert draw(runner, one([5], context=4, blocks=(5, 6))) != right


def test_the_same_tokens_behind_another_beginning_are_another_block() -> None:
    runner = small()
    right = draw(runner, one([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    draw(runner, one([4, 3, 2, 1, 5, 6, 7, 8], blocks=(3, 4)))
    assert draw(runner, one([9], context=8, blocks=(0, 4, 2))) != right


def test_seed_choice_and_position_key_sampled_rows_only() -> None:
    def at(**changed: Any) -> int:
        return draw(small(), one([1, 2, 3], sampling=sampling([3], **changed)))

    hot = array("f", [1.0])
    assert at() == at(seeds=array("Q", [5]))
    assert at(temperature=hot) == at(temperature=hot)
    assert at(temperature=hot) != at(temperature=hot, seeds=array("Q", [5]))
    assert at(temperature=hot) != at(temperature=hot, choices=array("i", [1]))


def test_penalties_depend_on_what_counts_as_output() -> None:
    def at(num_prompt: int) -> int:
        batch = sampling(
            [3],
            presence_penalty=array("f", [0.5]),
            history=array("i", [1, 2, 3]),
            history_starts=array("i", [0, 3]),
            history_prompt_lens=array("i", [num_prompt]),
        )
        return draw(small(), one([1, 2, 3], sampling=batch))

    assert at(3) != at(2)


def test_masks_and_bias_limit_the_vocabulary() -> None:
    words = -(-997 // 32)
    mask = array("I", [0] * words)
    mask[40 // 32] |= 1 << (40 % 32)
    masked = sampling([3], masks=mask, mask_rows=array("i", [0]))
    assert draw(small(), one([1, 2, 3], sampling=masked)) == 40
    forced = sampling(
        [3], bias_starts=array("i", [0, 1]), bias_ids=array("i", [77]), bias_values=array("f", [100.0])
    )
    assert draw(small(), one([1, 2, 3], sampling=forced)) == 77
    free = draw(small(), one([1, 2, 3]))
    banned = sampling(
        [3], bias_starts=array("i", [0, 1]), bias_ids=array("i", [free]), bias_values=array("f", [-100.0])
    )
    assert draw(small(), one([1, 2, 3], sampling=banned)) != free


def test_a_script_sees_the_tokens_in_the_blocks_and_decides() -> None:
    seen: list[DrawnRow] = []

    def script(row: DrawnRow) -> int | None:
        seen.append(row)
        return 123 if row.position == 5 else None

    runner = FakeRunner(num_blocks=8, block_size=4, script=script)
    assert draw(runner, one([1, 2, 3, 4, 5])) == 123
    draw(runner, one([6], context=5))
    assert [row.tokens for row in seen] == [(1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)]


def test_logprobs_and_hidden_rows() -> None:
    step = one(
        [1, 2, 3],
        output_rows=array("i", [0, 2]),
        output_kinds=array("i", [OutputKind.HIDDEN, OutputKind.LOGITS]),
        sampling=sampling([3], num_logprobs=array("i", [2])),
    )
    result = small().execute(step)
    (logprobs,) = result.logprobs
    assert logprobs is not None
    assert logprobs.token_id == result.tokens[0]
    assert len(logprobs.top) == 2
    assert len(result.hidden) == 8 * 4


def test_blocks_can_be_read_and_written_back() -> None:
    runner = small()
    right = draw(runner, one([1, 2, 3, 4, 5]))
    saved = runner.read_block(0)
    draw(runner, one([9, 9, 9, 9]))
    runner.write_block(0, saved)
    assert draw(runner, one([5], context=4)) == right
    with pytest.raises(ValueError, match="4 slots"):
        runner.write_block(0, b"")
    with pytest.raises(ValueError, match="no block 8"):
        runner.read_block(8)


def test_it_fails_once_when_told_and_leaves_garbage() -> None:
    runner = small()
    right = draw(runner, one([1, 2, 3, 4, 5]))
    runner.fail_next(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        runner.execute(one([1, 2, 3, 4, 5]))
    assert draw(runner, one([5], context=4)) != right


def test_it_moves_the_clock_by_the_cost_of_a_step() -> None:
    clock = ManualClock()
    runner = FakeRunner(clock=clock, cost_ns=lambda step: 10 * len(step.tokens))
    runner.execute(one([1, 2, 3]))
    assert clock.now_ns() == 30


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("outside the vocabulary", {"tokens": array("i", [1, 2, 997])}),
    ("outside the vocabulary", {"tokens": array("i", [1, 2, -1])}),
    ("not consecutive", {"positions": array("i", [0, 1, 3])}),
    ("outside the cache", {"block_table": array("i", [0, 8, 1])}),
    ("sequence_starts", {"sequence_starts": array("i", [0, 2])}),
    ("block_table_starts", {"block_table": array("i"), "block_table_starts": array("i", [0, 0])}),
    ("adapter", {"adapter_ids": array("i")}),
    ("ascending", {"output_rows": array("i", [2, 2]), "output_kinds": array("i", [0, 0])}),
    ("no token", {"output_rows": array("i", [3])}),
    ("differ in length", {"output_kinds": array("i")}),
    ("unknown kind", {"output_kinds": array("i", [2])}),
    ("sampling is None", {"sampling": None}),
    ("does not follow", {"sampling": sampling([4])}),
    ("2 rows, 1 are sampled", {"sampling": sampling([3, 3])}),
    ("mask row", {"sampling": sampling([3], mask_rows=array("i", [0]))}),
    ("held elsewhere", {"block_table": array("i", [0, 0, 1])}),
]


@pytest.mark.parametrize(("message", "changed"), BROKEN)
def test_a_step_that_breaks_the_contract_is_refused_and_changes_nothing(
    message: str, changed: dict[str, Any]
) -> None:
    runner = small()
    before = [runner.read_block(block) for block in range(8)]
    with pytest.raises(ValueError, match=message):
        runner.execute(replace(one([1, 2, 3]), **changed))
    assert [runner.read_block(block) for block in range(8)] == before


def test_a_block_written_by_one_sequence_may_not_be_in_anothers_table() -> None:
    step = Step(
        tokens=array("i", [1, 2, 3, 4, 9]),
        positions=array("i", [0, 1, 2, 3, 4]),
        sequence_starts=array("i", [0, 4, 5]),
        context_lens=array("i", [0, 4]),
        block_table=array("i", [0, 0, 1]),
        block_table_starts=array("i", [0, 1, 3]),
        adapter_ids=array("i", [0, 0]),
        output_rows=array("i"),
        output_kinds=array("i"),
        sampling=None,
    )
    with pytest.raises(ValueError, match="block 0 is written by sequence 0"):
        small().execute(step)


def test_a_block_table_must_hold_the_tokens() -> None:
    with pytest.raises(ValueError, match="sequence 0 is too short"):
        small().execute(one([1, 2, 3, 4, 5], blocks=(0,)))


def test_the_context_is_limited() -> None:
    with pytest.raises(ValueError, match="context of 24"):
        small().execute(one(list(range(25)), blocks=tuple(range(7))))
