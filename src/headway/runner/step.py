"""One step as flat arrays, and its result: the contract of the native boundary. It knows no scheduler and no model.

Arrays are `array.array` of the type code given (any object with the buffer protocol and that item type will do).
B sequences, T tokens over all of them, R output rows, S rows that are sampled (the rows of kind LOGITS), V vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from headway.core.messages import TokenLogprobs


class OutputKind(IntEnum):
    """What is computed at an output row."""

    LOGITS = 0
    """Logits, from which one token is sampled."""
    HIDDEN = 1
    """The final hidden state after the last norm, as float32 (embeddings)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingBatch:
    """Sampling parameters of the S sampled rows, in the order of `Step.output_rows`. Meaning: `SamplingParams`.

    positions          'i' (S,)  absolute position of the token that is drawn: with seed and choice the random key
    history            'i'       per row the tokens so far (prompt, then output), only for rows with a penalty
    history_starts     'i' (S+1,)
    history_prompt_lens'i' (S,)  how many of the row's history tokens are prompt
    bias_starts        'i' (S+1,), bias_ids 'i', bias_values 'f'
    num_logprobs       'i' (S,)  -1 = none
    mask_rows          'i' (S,)  row of `masks` that limits this row's vocabulary, -1 = none
    masks              'I' (num_masks × ceil(V/32),)  bit t%32 of word t//32 set = token t allowed
    """

    temperature: array[float]  # 'f' (S,)
    top_k: array[int]  # 'i' (S,)
    top_p: array[float]  # 'f' (S,)
    min_p: array[float]  # 'f' (S,)
    repetition_penalty: array[float]  # 'f' (S,)
    presence_penalty: array[float]  # 'f' (S,)
    frequency_penalty: array[float]  # 'f' (S,)
    seeds: array[int]  # 'Q' (S,)
    choices: array[int]  # 'i' (S,)
    positions: array[int]
    num_logprobs: array[int]
    history_starts: array[int]
    history: array[int]
    history_prompt_lens: array[int]
    bias_starts: array[int]
    bias_ids: array[int]
    bias_values: array[float]
    mask_rows: array[int]
    masks: array[int]


def greedy(positions: array[int]) -> SamplingBatch:
    """Return parameters of rows that take the likeliest token, drawn at `positions` 'i' (S,)."""
    num_rows = len(positions)
    none = array("i", [0] * num_rows)
    zeros, ones = array("f", [0.0] * num_rows), array("f", [1.0] * num_rows)
    starts = array("i", [0] * (num_rows + 1))
    unset = array("i", [-1] * num_rows)
    return SamplingBatch(
        temperature=zeros,
        top_k=none,
        top_p=ones,
        min_p=zeros,
        repetition_penalty=ones,
        presence_penalty=zeros,
        frequency_penalty=zeros,
        seeds=array("Q", [0] * num_rows),
        choices=none,
        positions=positions,
        num_logprobs=unset,
        history_starts=starts,
        history=array("i"),
        history_prompt_lens=none,
        bias_starts=starts,
        bias_ids=array("i"),
        bias_values=array("f"),
        mask_rows=unset,
        masks=array("I"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass over B sequences.

    tokens             'i' (T,)    token ids, sequence after sequence
    positions          'i' (T,)    absolute positions; within a sequence consecutive from its context length
    sequence_starts    'i' (B+1,)  tokens of sequence b: [starts[b], starts[b+1])
    context_lens       'i' (B,)    tokens of b already in the KV cache before this step
    block_table        'i'         block ids of all sequences, one after another
    block_table_starts 'i' (B+1,)
    adapter_ids        'i' (B,)    0 = base
    output_rows        'i' (R,)    indices into tokens, ascending; a sequence may have none, one or several
    output_kinds       'i' (R,)    OutputKind
    sampling           parameters of the rows of kind LOGITS; None when there are none
    """

    tokens: array[int]
    positions: array[int]
    sequence_starts: array[int]
    context_lens: array[int]
    block_table: array[int]
    block_table_starts: array[int]
    adapter_ids: array[int]
    output_rows: array[int]
    output_kinds: array[int]
    sampling: SamplingBatch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step computed.

    tokens     one sampled id per row of kind LOGITS, in order (S,); -1 = none could be drawn (every token masked, or no
               logit is a number)
    logprobs   per sampled row, None where not asked for; empty when no row asked
    hidden     float32 bytes, one row of hidden_size per row of kind HIDDEN
    """

    tokens: Sequence[int]
    logprobs: Sequence[TokenLogprobs | None] = ()
    hidden: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerInfo:
    """What a runner is: fixed while it lives."""

    vocab_size: int
    max_context: int
    num_blocks: int
    block_size: int
    system_fingerprint: str


class Runner(Protocol):
    """Computes steps. Owns weights and KV storage; owns no policy. Not thread-safe: one caller at a time."""

    @property
    def info(self) -> RunnerInfo:
        """What this runner is."""
        ...

    def execute(self, step: Step) -> StepResult:
        """Write K and V of every token of `step` into its blocks, and sample at the rows asked for.

        Raises ValueError for a step that breaks the contract (nothing is computed then).
        """
        ...

    def read_block(self, block: int) -> bytes:
        """Return the raw bytes of one KV block (every layer, K and V, scales included)."""
        ...

    def write_block(self, block: int, data: bytes) -> None:
        """Overwrite one KV block with bytes that `read_block` gave under the same fingerprint."""
        ...

    def copy_block(self, source: int, target: int) -> None:
        """Copy one KV block onto another."""
        ...

    def bind_block(self, block: int) -> None:
        """Give a KV block its memory, which it otherwise gets when it is first written. Its content stays."""
        ...
