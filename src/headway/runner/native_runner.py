"""The runner that computes: Python's side of the native boundary.

It turns a `Step` into one native call and the answer into a `StepResult`. It knows no scheduler and no file format; what the
arrays mean is checked in native code (native/src/step.cpp).
"""

from array import array

from headway import _native
from headway.core.messages import TokenLogprobs
from headway.runner.step import RunnerInfo, Step, StepResult, greedy


class NativeRunner:
    """Computes steps with the native core. Implements `headway.runner.step.Runner`; one caller at a time."""

    def __init__(self, cache: _native.KvCache, info: RunnerInfo) -> None:
        self._cache = cache
        self._native = _native.Runner(cache)
        self._info = info
        self._no_sampling = greedy(array("i"))

    @property
    def info(self) -> RunnerInfo:
        """What this runner is."""
        return self._info

    @property
    def model(self) -> _native.Model:
        """The weights that it computes with."""
        return self._cache.model

    def execute(self, step: Step) -> StepResult:
        """Write K and V of every token of `step` into its blocks, and sample at the rows asked for.

        A row at which no token is allowed (a mask without a bit, logits that are all NaN) gives the id -1.
        Raises ValueError for a step that breaks the contract (nothing is computed then).
        """
        sampling = self._no_sampling if step.sampling is None else step.sampling
        tokens, logprobs, hidden = self._native.execute(
            tokens=step.tokens,
            positions=step.positions,
            sequence_starts=step.sequence_starts,
            context_lens=step.context_lens,
            block_table=step.block_table,
            block_table_starts=step.block_table_starts,
            adapter_ids=step.adapter_ids,
            output_rows=step.output_rows,
            output_kinds=step.output_kinds,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            seeds=sampling.seeds,
            choices=sampling.choices,
            sampling_positions=sampling.positions,
            num_logprobs=sampling.num_logprobs,
            history_starts=sampling.history_starts,
            history=sampling.history,
            history_prompt_lens=sampling.history_prompt_lens,
            bias_starts=sampling.bias_starts,
            bias_ids=sampling.bias_ids,
            bias_values=sampling.bias_values,
            mask_rows=sampling.mask_rows,
            masks=sampling.masks,
        )
        if all(entry is None for entry in logprobs):
            return StepResult(tokens=tokens, hidden=hidden)
        named = tuple(
            None if entry is None else TokenLogprobs(token, entry[0], entry[1])
            for token, entry in zip(tokens, logprobs, strict=True)
        )
        return StepResult(tokens=tokens, logprobs=named, hidden=hidden)

    def forward(self, step: Step) -> bytes:
        """Compute `step` without sampling; return float32 logits (R, vocab_size) of its rows of kind LOGITS.

        Writes K and V as `execute` does. Raises ValueError for a step that breaks the contract.
        """
        return self._native.forward(
            tokens=step.tokens,
            positions=step.positions,
            sequence_starts=step.sequence_starts,
            context_lens=step.context_lens,
            block_table=step.block_table,
            block_table_starts=step.block_table_starts,
            adapter_ids=step.adapter_ids,
            output_rows=step.output_rows,
            output_kinds=step.output_kinds,
        )

    def time_phases(self, on: bool) -> None:
        """Switch the phase timers on or off (off at first, which costs nothing); forget what they counted."""
        self._native.time_phases(on)

    def phases(self) -> tuple[int, int, dict[str, int]]:
        """Return what was counted since `time_phases`: the steps, their nanoseconds, and those of each phase.

        A phase's are the mean over the workers; "wait" is what they waited for others. Together they are the steps'.
        """
        return self._native.phases()

    def read_block(self, block: int) -> bytes:
        """Return the raw bytes of one KV block. Raises IndexError for a block that does not exist."""
        return self._cache.read_block(block)

    def write_block(self, block: int, data: bytes) -> None:
        """Overwrite one KV block with bytes that `read_block` gave. Raises IndexError, ValueError (another size)."""
        self._cache.write_block(block, data)

    def copy_block(self, source: int, target: int) -> None:
        """Copy one KV block onto another. Raises IndexError for a block that does not exist."""
        self._cache.copy_block(source, target)

    def bind_block(self, block: int) -> None:
        """Give one KV block its memory now, huge pages at a time. Raises IndexError for a block that does not exist."""
        self._cache.bind_block(block)
