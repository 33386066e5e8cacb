"""Text for a trace's requests: traces tell sizes and what is shared, never words.

A row with `hash_ids` becomes its blocks, each the same code wherever its identifier stands: so requests share prefixes as
they did when they were recorded. Any other row becomes code of its own. Which code depends on the seed and the row alone.
"""

from collections.abc import Iterator

from headway.core.errors import ConfigError
from headway.lab.code_corpus import CodeCorpus
from headway.lab.trace import Trace, TraceRow
from headway.lab.trace_mooncake import BLOCK_TOKENS
from headway.lab.workload import TEMPLATE_TOKENS, Conversation, WorkloadOptions

UNKNOWN_INPUT_TOKENS = 256
"""A prompt's length where the trace does not tell it, as in most access logs."""


def trace_conversations(
    trace: Trace,
    corpus: CodeCorpus,
    options: WorkloadOptions,
    unknown_input_tokens: int = UNKNOWN_INPUT_TOKENS,
) -> Iterator[Conversation]:
    """Return the conversation of each row, in the trace's order; each has one turn.

    An answer's length is the row's; `options.output_tokens` where that is 0 or unknown. Raises ConfigError at once when rows
    do not fit the model.
    """
    if options.max_context_tokens is not None:
        room = options.max_context_tokens - TEMPLATE_TOKENS
        too_long = [row for row in trace.rows if sum(_tokens(row, options, unknown_input_tokens)) > room]
        if too_long:
            raise ConfigError(
                f"{len(too_long)} of the trace's {len(trace.rows)} requests do not fit the model's "
                f"{options.max_context_tokens} tokens, the first on line {too_long[0].line}."
            )
    return (
        _conversation(number, row, trace, corpus, options, unknown_input_tokens)
        for number, row in enumerate(trace.rows)
    )


def _conversation(
    number: int, row: TraceRow, trace: Trace, corpus: CodeCorpus, options: WorkloadOptions, unknown: int
) -> Conversation:
    input_tokens, output_tokens = _tokens(row, options, unknown)
    prompt = (
        "".join(
            corpus.block(f"block {block}", min(BLOCK_TOKENS, input_tokens - first), options.count_tokens)
            for block, first in zip(row.hash_ids, range(0, input_tokens, BLOCK_TOKENS), strict=True)
        )
        if row.hash_ids
        else corpus.block(f"request {row.line}", input_tokens, options.count_tokens)
    )
    return Conversation(row.label or trace.format.value, (prompt,), output_tokens, number)


def _tokens(row: TraceRow, options: WorkloadOptions, unknown: int) -> tuple[int, int]:
    """Return how long the prompt and the answer are to be, both at least 1."""
    input_tokens = unknown if row.input_tokens is None else row.input_tokens
    return max(1, input_tokens), row.output_tokens or options.output_tokens
