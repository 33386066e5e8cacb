"""How long the engine's own Python takes per step, outside the runner: `python benchmarks/engine_overhead.py`.

The runner answers at once, so that everything measured is scheduling, building the step and reporting. Prints one line per
case: median and 99th percentile of decode steps, in microseconds.
"""

import statistics
import time

from headway.core.clock import MonotonicClock
from headway.core.config import SchedulerConfig
from headway.core.messages import EngineInfo, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine
from headway.runner.step import RunnerInfo, Step, StepResult

INFO = RunnerInfo(
    vocab_size=50_000, max_context=8192, num_blocks=16_384, block_size=16, system_fingerprint="null"
)
NUM_STEPS = 400


class NullRunner:
    """Draws token 7 everywhere and stores nothing."""

    info = INFO

    def execute(self, step: Step) -> StepResult:
        """Draw at once."""
        return StepResult(tokens=[7] * len(step.output_rows))

    def read_block(self, block: int) -> bytes:
        """Not needed here."""
        raise NotImplementedError(block)

    def write_block(self, block: int, data: bytes) -> None:
        """Not needed here."""
        raise NotImplementedError(block, data)

    def copy_block(self, source: int, target: int) -> None:
        """Not needed here."""
        raise NotImplementedError(source, target)


def measure(num_sequences: int, context: int, num_waiting: int, sampling: SamplingParams) -> list[float]:
    """Return the durations in microseconds of decode steps of `num_sequences`, with `num_waiting` more in the queue."""
    info = EngineInfo(
        model="null",
        vocab_size=INFO.vocab_size,
        max_context=INFO.max_context,
        num_blocks=INFO.num_blocks,
        block_size=INFO.block_size,
        system_fingerprint=INFO.system_fingerprint,
    )
    limits = SchedulerConfig(max_num_seqs=num_sequences, max_prefill_tokens=1_000_000)
    engine = Engine(NullRunner(), limits, MonotonicClock(), info)
    for index in range(num_sequences + num_waiting):
        tokens = tuple((index * 7919 + position) % INFO.vocab_size for position in range(context))
        request = Request(
            request_id=str(index), token_ids=tokens, sampling=sampling, max_tokens=NUM_STEPS + 2
        )
        engine.handle(Submit(request))
    engine.step()
    durations = []
    for _ in range(NUM_STEPS):
        before_ns = time.perf_counter_ns()
        engine.step()
        durations.append((time.perf_counter_ns() - before_ns) / 1_000)
    return durations


def main() -> None:
    plain, penalised = SamplingParams(seed=1), SamplingParams(seed=1, frequency_penalty=0.5)
    for num_sequences, context, num_waiting, sampling, note in (
        (1, 100, 0, plain, ""),
        (1, 4000, 0, plain, ""),
        (64, 100, 0, plain, ""),
        (64, 1000, 0, plain, ""),
        (64, 1000, 1000, plain, ", 1,000 waiting"),
        (64, 1000, 0, penalised, ", penalties"),
    ):
        durations = sorted(measure(num_sequences, context, num_waiting, sampling))
        print(
            f"{num_sequences:3} sequences of {context} tokens{note}: median {statistics.median(durations):.0f} µs, "
            f"P99 {durations[int(0.99 * len(durations))]:.0f} µs"
        )


if __name__ == "__main__":
    main()
