"""Measures a runner: prompts and decoding, without engine, gateway or tokenizer.

A repeat goes through the prompt and every batch once, so that a disturbance falls on all of them alike; between them the
caller may measure something else. It knows no model's file and prints nothing.
"""

import random
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headway.runner.native_runner import NativeRunner
from headway.runner.step import OutputKind, Step, greedy

_WARM_UP_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is measured."""

    prompt_tokens: int
    output_tokens: int
    context: int
    """Tokens in the KV cache before decoding starts."""
    batches: Sequence[int]
    chunk_tokens: int
    """Prompt tokens of one step."""
    repeat: int

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.prompt_tokens, self.context + self.output_tokens)

    def num_blocks(self, block_size: int) -> int:
        """Return how many KV blocks it takes: every sequence has its own."""
        return max(self.batches) * -(-self.longest // block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Where the time of steps went, in milliseconds a step; they add up to `step_ms`."""

    step_ms: float
    phases_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Every repeat's seconds: of the whole prompt, and of all decode steps of each batch."""

    prefill_s: Sequence[float]
    decode_s: Mapping[int, Sequence[float]]
    prefill_phases: Phases | None = None
    decode_phases: Mapping[int, Phases] | None = None


def measure(
    runner: NativeRunner,
    workload: Workload,
    *,
    phases: bool = False,
    between: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure `workload.repeat` times, calling `between` before the prompt, before each batch and after the last.

    The runner needs `workload.num_blocks` blocks and a context of `workload.longest`; what they held is lost.
    """
    bench = _Bench(runner, workload)
    bench.warm_up()
    runner.time_phases(phases)
    prefill_s: list[float] = []
    decode_s: dict[int, list[float]] = {batch: [] for batch in workload.batches}
    counted: dict[int, list[Phases]] = {batch: [] for batch in (0, *workload.batches)}  # 0: the prompt
    for _ in range(workload.repeat):
        between()
        prefill_s.append(bench.prefill())
        counted[0] += _take_phases(runner, phases)
        for batch in workload.batches:
            between()
            decode_s[batch].append(bench.decode(batch))
            counted[batch] += _take_phases(runner, phases)
        between()
    runner.time_phases(False)
    return Measured(
        prefill_s=prefill_s,
        decode_s=decode_s,
        prefill_phases=_mean(counted[0]) if phases else None,
        decode_phases={batch: _mean(counted[batch]) for batch in workload.batches} if phases else None,
    )


def _take_phases(runner: NativeRunner, wanted: bool) -> Iterator[Phases]:
    if not wanted:
        return
    num_steps, steps_ns, times_ns = runner.phases()
    yield Phases(
        step_ms=steps_ns / num_steps / 1e6,
        phases_ms={name: time_ns / num_steps / 1e6 for name, time_ns in times_ns.items()},
    )
    runner.time_phases(True)


def _mean(many: Sequence[Phases]) -> Phases:
    return Phases(
        step_ms=sum(one.step_ms for one in many) / len(many),
        phases_ms={name: sum(one.phases_ms[name] for one in many) / len(many) for name in many[0].phases_ms},
    )


class _Bench:
    """The steps of a workload on one runner. Sequence s owns the blocks [s * n, (s + 1) * n)."""

    def __init__(self, runner: NativeRunner, workload: Workload) -> None:
        self._runner = runner
        self._workload = workload
        self._num_blocks = -(-workload.longest // runner.info.block_size)
        rng = random.Random(0)
        num_tokens = max(workload.longest, *workload.batches)
        self._tokens = array("i", [rng.randrange(runner.info.vocab_size) for _ in range(num_tokens)])

    def warm_up(self) -> None:
        """Run every kind of step once, and fill all blocks: memory that was never written reads twice as fast."""
        block_size = self._runner.info.block_size
        num_tokens = min(max(block_size, _WARM_UP_TOKENS), self._workload.longest)
        self._prefill(num_tokens)
        num_filled = max(1, num_tokens // block_size)
        for block in range(num_filled, max(self._workload.batches) * self._num_blocks):
            self._runner.copy_block(block % num_filled, block)
        for batch in self._workload.batches:
            self._decode(batch, 1)

    def prefill(self) -> float:
        """Return the seconds that the prompt took."""
        return self._prefill(self._workload.prompt_tokens)

    def decode(self, batch: int) -> float:
        """Return the seconds that decoding took."""
        return self._decode(batch, self._workload.output_tokens)

    def _prefill(self, num_tokens: int) -> float:
        elapsed_ns = 0
        for start in range(0, num_tokens, self._workload.chunk_tokens):
            chunk = self._tokens[start : min(start + self._workload.chunk_tokens, num_tokens)]
            last = start + len(chunk) == num_tokens
            step = Step(
                tokens=chunk,
                positions=array("i", range(start, start + len(chunk))),
                sequence_starts=array("i", [0, len(chunk)]),
                context_lens=array("i", [start]),
                block_table=array("i", range(self._num_blocks)),
                block_table_starts=array("i", [0, self._num_blocks]),
                adapter_ids=array("i", [0]),
                output_rows=array("i", [len(chunk) - 1] if last else []),
                output_kinds=array("i", [OutputKind.LOGITS] if last else []),
                sampling=greedy(array("i", [num_tokens])) if last else None,
            )
            begin_ns = time.perf_counter_ns()
            self._runner.execute(step)
            elapsed_ns += time.perf_counter_ns() - begin_ns
        return elapsed_ns / 1e9

    def _decode(self, batch: int, num_steps: int) -> float:
        elapsed_ns = 0
        ones = array("i", range(batch + 1))
        table = array("i", range(batch * self._num_blocks))
        table_starts = array("i", range(0, len(table) + 1, self._num_blocks))
        tokens = self._tokens[:batch]
        for position in range(self._workload.context, self._workload.context + num_steps):
            step = Step(
                tokens=tokens,
                positions=array("i", [position] * batch),
                sequence_starts=ones,
                context_lens=array("i", [position] * batch),
                block_table=table,
                block_table_starts=table_starts,
                adapter_ids=array("i", [0] * batch),
                output_rows=ones[:batch],
                output_kinds=array("i", [OutputKind.LOGITS] * batch),
                sampling=greedy(array("i", [position + 1] * batch)),
            )
            begin_ns = time.perf_counter_ns()
            result = self._runner.execute(step)
            elapsed_ns += time.perf_counter_ns() - begin_ns
            tokens = array("i", [max(0, token) for token in result.tokens])
        return elapsed_ns / 1e9
