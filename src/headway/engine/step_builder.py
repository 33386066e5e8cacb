"""Turns planned chunks into the flat arrays of a `Step`. It decides nothing and changes no sequence.

The random key of a drawn token is (seed, choice, its absolute position), so it does not depend on how the sequence got
here: batch, chunks, preemption and resumption draw the same token. So does a draft: the token behind one of its tokens is
drawn with the history and the position that it will have once that draft token stands.
"""

from array import array
from collections.abc import Iterable

from headway.engine.sequence import Sequence
from headway.engine.view import Chunk
from headway.runner.step import OutputKind, SamplingBatch, Step


def build_step(chunks: Iterable[Chunk[Sequence]]) -> Step:
    """Return the step that computes `chunks`.

    Its sampled rows are those of chunks that draw, one at the last token and one at each token of the draft; its hidden
    rows those that poolers ask for; both in the chunks' order.
    """
    tokens, positions, starts, context_lens = array("i"), array("i"), array("i", [0]), array("i")
    table, table_starts, adapters = array("i"), array("i", [0]), array("i")
    rows, kinds = array("i"), array("i")
    drawing: list[Sequence] = []
    drawn_at = array("i")
    drafted: dict[int, tuple[int, ...]] = {}
    for sequence, num_tokens, draws, draft in chunks:
        first = sequence.num_computed
        if num_tokens == 1:
            tokens.append(sequence.tokens[first])
            positions.append(first)
        else:
            tokens.extend(sequence.tokens[first : first + num_tokens])
            positions.extend(range(first, first + num_tokens))
        if draft:
            tokens.extend(draft)
            positions.extend(range(first + num_tokens, first + num_tokens + len(draft)))
        starts.append(len(tokens))
        context_lens.append(first)
        table.extend(sequence.table)
        table_starts.append(len(table))
        adapters.append(sequence.request.adapter_id)
        if sequence.pooler is not None:
            num_rows = sequence.pooler.num_rows(num_tokens, ends=draws)
            rows.extend(range(len(tokens) - num_rows, len(tokens)))
            kinds.extend([OutputKind.HIDDEN] * num_rows)
        elif draft:
            num_rows = 1 + len(draft)
            rows.extend(range(len(tokens) - num_rows, len(tokens)))
            kinds.extend([OutputKind.LOGITS] * num_rows)
            drafted.update((len(drawing) + count, draft[:count]) for count in range(1, num_rows))
            drawing.extend([sequence] * num_rows)
            drawn_at.extend(range(first + num_tokens, first + num_tokens + num_rows))
        elif draws:
            rows.append(len(tokens) - 1)
            kinds.append(OutputKind.LOGITS)
            drawing.append(sequence)
            drawn_at.append(first + num_tokens)
    return Step(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        context_lens=context_lens,
        block_table=table,
        block_table_starts=table_starts,
        adapter_ids=adapters,
        output_rows=rows,
        output_kinds=kinds,
        sampling=_sampling(drawing, drawn_at, drafted) if drawing else None,
    )


def _sampling(
    sequences: list[Sequence], positions: "array[int]", drafted: dict[int, tuple[int, ...]]
) -> SamplingBatch:
    """Return the sampling parameters of a row for each of `sequences`, which draws the token at its `positions`.

    drafted   row → tokens of the draft before that position, if any
    """
    all_params = [sequence.request.sampling for sequence in sequences]
    history, history_starts, history_prompt_lens = array("i"), array("i", [0]), array("i")
    bias_starts, bias_ids, bias_values = array("i", [0]), array("i"), array("f")
    mask_rows, masks, num_masks = array("i"), array("I"), 0
    for row, (sequence, params) in enumerate(zip(sequences, all_params, strict=True)):
        num_prompt = 0
        if params.needs_history:
            history.extend(sequence.tokens)
            history.extend(drafted.get(row, ()))
            # What an earlier run generated came with the prompt but is output all the same.
            num_prompt = sequence.num_asked
        history_starts.append(len(history))
        history_prompt_lens.append(num_prompt)
        for token, bias in params.logit_bias:
            bias_ids.append(token)
            bias_values.append(bias)
        bias_starts.append(len(bias_ids))
        mask_rows.append(-1 if sequence.matcher is None else num_masks)
        if sequence.matcher is not None:
            masks.frombytes(sequence.matcher.mask())
            num_masks += 1
    return SamplingBatch(
        temperature=array("f", [p.temperature for p in all_params]),
        top_k=array("i", [p.top_k for p in all_params]),
        top_p=array("f", [p.top_p for p in all_params]),
        min_p=array("f", [p.min_p for p in all_params]),
        repetition_penalty=array("f", [p.repetition_penalty for p in all_params]),
        presence_penalty=array("f", [p.presence_penalty for p in all_params]),
        frequency_penalty=array("f", [p.frequency_penalty for p in all_params]),
        seeds=array("Q", [p.seed for p in all_params]),
        choices=array("i", [s.choice for s in sequences]),
        positions=positions,
        num_logprobs=array("i", [-1 if p.num_logprobs is None else p.num_logprobs for p in all_params]),
        history_starts=history_starts,
        history=history,
        history_prompt_lens=history_prompt_lens,
        bias_starts=bias_starts,
        bias_ids=bias_ids,
        bias_values=bias_values,
        mask_rows=mask_rows,
        masks=masks,
    )
