"""Refuses steps that break the contract of `headway.runner.step`, before anything is computed.

Stricter than the contract in one point: a block that one sequence writes may not be in another one's table within the same
step, since its content would depend on which is computed first. It knows no storage.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise

from headway.runner.step import OutputKind, RunnerInfo, Step


def written_blocks(step: Step, index: int, block_size: int) -> Sequence[int]:
    """Return the blocks that sequence `index` writes in `step`."""
    first = step.context_lens[index]
    last = first + step.sequence_starts[index + 1] - step.sequence_starts[index] - 1
    start = step.block_table_starts[index]
    return step.block_table[start + first // block_size : start + last // block_size + 1]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_step(step: Step, info: RunnerInfo) -> None:
    """Raise ValueError unless `step` keeps the contract of `headway.runner.step`."""
    num_sequences, num_tokens = len(step.context_lens), len(step.tokens)
    _require(num_sequences > 0, "a step needs a sequence")
    _check_starts(step.sequence_starts, num_sequences, num_tokens, "sequence_starts", at_least=1)
    _check_starts(
        step.block_table_starts, num_sequences, len(step.block_table), "block_table_starts", at_least=1
    )
    _require(len(step.positions) == num_tokens, "positions and tokens differ in length")
    _require(len(step.adapter_ids) == num_sequences, "adapter_ids has another length than context_lens")
    _require(min(step.adapter_ids) >= 0, "an adapter id is negative")
    _require(
        min(step.tokens) >= 0 and max(step.tokens) < info.vocab_size, "a token is outside the vocabulary"
    )
    _require(
        min(step.block_table) >= 0 and max(step.block_table) < info.num_blocks, "a block is outside the cache"
    )
    for index in range(num_sequences):
        low, high = step.sequence_starts[index], step.sequence_starts[index + 1]
        context = step.context_lens[index]
        end = context + high - low
        _require(context >= 0, "a context length is negative")
        _require(end <= info.max_context, f"sequence {index} exceeds the context of {info.max_context}")
        _require(list(step.positions[low:high]) == list(range(context, end)), "positions are not consecutive")
        num_blocks = step.block_table_starts[index + 1] - step.block_table_starts[index]
        _require(end <= num_blocks * info.block_size, f"the block table of sequence {index} is too short")
    _check_sharing(step, info.block_size)
    rows = list(step.output_rows)
    _require(rows == sorted(set(rows)), "output_rows are not ascending")
    _require(not rows or (rows[0] >= 0 and rows[-1] < num_tokens), "an output row is no token")
    _require(len(step.output_kinds) == len(rows), "output_kinds and output_rows differ in length")
    _require(
        all(kind in (OutputKind.LOGITS, OutputKind.HIDDEN) for kind in step.output_kinds), "unknown kind"
    )
    _check_sampling(step, info.vocab_size)


def _check_starts(starts: "array[int]", count: int, total: int, name: str, *, at_least: int) -> None:
    _require(
        len(starts) == count + 1 and starts[0] == 0 and starts[-1] == total, f"{name} do not span the items"
    )
    _require(all(b - a >= at_least for a, b in pairwise(starts)), f"{name} do not ascend")


def _check_sharing(step: Step, block_size: int) -> None:
    """Refuse a block that one sequence writes while it is in a table twice, or in another one's."""
    holders: dict[int, int] = {}
    for block in step.block_table:
        holders[block] = holders.get(block, 0) + 1
    for index in range(len(step.context_lens)):
        for block in written_blocks(step, index, block_size):
            _require(
                holders[block] == 1, f"block {block} is written by sequence {index} and held elsewhere, too"
            )


def _check_sampling(step: Step, vocab_size: int) -> None:
    num_sampled = sum(kind == OutputKind.LOGITS for kind in step.output_kinds)
    batch = step.sampling
    if batch is None:
        _require(num_sampled == 0, "rows are sampled but sampling is None")
        return
    per_row = (
        ("temperature", batch.temperature),
        ("top_k", batch.top_k),
        ("top_p", batch.top_p),
        ("min_p", batch.min_p),
        ("repetition_penalty", batch.repetition_penalty),
        ("presence_penalty", batch.presence_penalty),
        ("frequency_penalty", batch.frequency_penalty),
        ("seeds", batch.seeds),
        ("choices", batch.choices),
        ("positions", batch.positions),
        ("num_logprobs", batch.num_logprobs),
        ("history_prompt_lens", batch.history_prompt_lens),
        ("mask_rows", batch.mask_rows),
    )
    for name, values in per_row:
        _require(len(values) == num_sampled, f"{name} has {len(values)} rows, {num_sampled} are sampled")
    _check_starts(batch.history_starts, num_sampled, len(batch.history), "history_starts", at_least=0)
    _check_starts(batch.bias_starts, num_sampled, len(batch.bias_ids), "bias_starts", at_least=0)
    _require(len(batch.bias_values) == len(batch.bias_ids), "bias_values and bias_ids differ in length")
    _require(
        all(0 <= token < vocab_size for token in batch.bias_ids), "a biased token is outside the vocabulary"
    )
    words = -(-vocab_size // 32)
    _require(len(batch.masks) % words == 0, "masks are not whole rows")
    num_masks = len(batch.masks) // words
    _require(all(-1 <= row < num_masks for row in batch.mask_rows), "a mask row does not exist")
    sampled = [r for r, k in zip(step.output_rows, step.output_kinds, strict=True) if k == OutputKind.LOGITS]
    for index, row in enumerate(sampled):
        _require(
            batch.positions[index] == step.positions[row] + 1, "a draw's position does not follow its row"
        )
        num_history = batch.history_starts[index + 1] - batch.history_starts[index]
        _require(
            0 <= batch.history_prompt_lens[index] <= num_history, "history_prompt_lens exceed the history"
        )
        _require(batch.temperature[index] >= 0, "a temperature is negative")
