"""Turns planned chunks into the flat arrays of a `Step`. It decides nothing and changes no sequence.

The random key of a drawn token is (seed, choice, its absolute position), so it does not depend on how the sequence got
here: batch, chunks, preemption and resumption draw the same token.
"""

from array import array
from collections.abc import Iterable

from headway.engine.sequence import Sequence
from headway.engine.view import Chunk
from headway.runner.step import OutputKind, SamplingBatch, Step


def build_step(chunks: Iterable[Chunk[Sequence]]) -> Step:
    """Return the step that computes `chunks`.

    Its sampled rows are those of chunks that draw, its hidden rows those that poolers ask for; both in the chunks' order.
    """
    tokens, positions, starts, context_lens = array("i"), array("i"), array("i", [0]), array("i")
    table, table_starts, adapters = array("i"), array("i", [0]), array("i")
    rows, kinds = array("i"), array("i")
    drawing: list[Sequence] = []
    for sequence, num_tokens, draws in chunks:
        first = sequence.num_computed
        if num_tokens == 1:
            tokens.append(sequence.tokens[first])
            positions.append(first)
        else:
            tokens.extend(sequence.tokens[first : first + num_tokens])
            positions.extend(range(first, first + num_tokens))
        starts.append(len(tokens))
        context_lens.append(first)
        table.extend(sequence.table)
        table_starts.append(len(table))
        adapters.append(sequence.request.adapter_id)
        if sequence.pooler is not None:
            num_rows = sequence.pooler.num_rows(num_tokens, ends=draws)
            rows.extend(range(len(tokens) - num_rows, len(tokens)))
            kinds.extend([OutputKind.HIDDEN] * num_rows)
        elif draws:
            rows.append(len(tokens) - 1)
            kinds.append(OutputKind.LOGITS)
            drawing.append(sequence)
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
        sampling=_sampling(drawing) if drawing else None,
    )


def _sampling(sequences: list[Sequence]) -> SamplingBatch:
    """Return the sampling parameters of one row for each of `sequences`, each drawing its next token."""
    all_params = [sequence.request.sampling for sequence in sequences]
    history, history_starts, history_prompt_lens = array("i"), array("i", [0]), array("i")
    bias_starts, bias_ids, bias_values = array("i", [0]), array("i"), array("f")
    mask_rows, masks, num_masks = array("i"), array("I"), 0
    for sequence, params in zip(sequences, all_params, strict=True):
        if params.needs_history:
            history.extend(sequence.tokens)
        history_starts.append(len(history))
        # What an earlier run generated came with the prompt but is output all the same.
        history_prompt_lens.append(
            sequence.num_prompt - sequence.request.num_resumed if params.needs_history else 0
        )
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
        positions=array("i", [s.num_tokens for s in sequences]),
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
