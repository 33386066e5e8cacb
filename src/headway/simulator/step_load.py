"""What a step carries, as far as its duration depends on it: numbers summed over its sequences.

The engine's own model (`engine/step_time.py`) learns from four of them; a prediction of what was never run needs a few more.
"""

from typing import NamedTuple

from headway.runner.step import Step


class StepLoad(NamedTuple):
    """Sums over a step.

    rows       tokens that go through the layers
    drawn      rows that go through the output matrix, at each of which a token is drawn
    sequences  sequences
    context    for sequences with one token: positions that it attends to, itself among them
    pairs      for sequences with several: pairs of a token and a position that it attends to
    prefix     of those: tokens cached before the step, which are read once for many rows
    chunks     how many sequences have several tokens
    """

    rows: int
    drawn: int
    sequences: int
    context: int = 0
    pairs: int = 0
    prefix: int = 0
    chunks: int = 0


def load_of(step: Step) -> StepLoad:
    """Return what `step` carries."""
    rows, sequences, drawn = len(step.tokens), len(step.context_lens), len(step.output_rows)
    if rows == sequences:
        return StepLoad(rows, drawn, sequences, sum(step.context_lens) + sequences)
    context = pairs = prefix = chunks = 0
    starts = step.sequence_starts
    for index, cached in enumerate(step.context_lens):
        num_tokens = starts[index + 1] - starts[index]
        if num_tokens == 1:
            context += cached + 1
        else:
            pairs += num_tokens * cached + num_tokens * (num_tokens + 1) // 2
            prefix += cached
            chunks += 1
    return StepLoad(rows, drawn, sequences, context, pairs, prefix, chunks)
