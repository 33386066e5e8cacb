"""How long the engine's own Python takes per step, outside the runner: `python benchmarks/engine_overhead.py`.

The runner answers at once, so that everything measured is scheduling, building the step and reporting. Prints one line per
case: median and 99th percentile in microseconds, of decode steps and, in the last case, of steps that compute a long prompt
while a full queue waits that shares one prefix of 4,000 tokens. It always draws the same token, so with few sequences every
step carries drafts, all of them right: the dearest kind of step.
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
from step_only import StepOnlyRunner

INFO = RunnerInfo(
    vocab_size=50_000, max_context=8192, num_blocks=16_384, block_size=16, system_fingerprint="null"
)
NUM_STEPS = 400


class NullRunner(StepOnlyRunner):
    """Draws token 7 everywhere and stores nothing."""

    info = INFO

    def execute(self, step: Step) -> StepResult:
        """Draw at once."""
        return StepResult(tokens=[7] * len(step.output_rows))


def measure(num_sequences: int, context: int, num_waiting: int, sampling: SamplingParams) -> list[float]:
    """Return the durations in microseconds of decode steps of `num_sequences`, with `num_waiting` more in the queue."""
    engine = make_engine(SchedulerConfig(max_num_seqs=num_sequences, max_prefill_tokens=1_000_000))
    for index in range(num_sequences + num_waiting):
        tokens = tuple((index * 7919 + position) % INFO.vocab_size for position in range(context))
        submit(engine, str(index), tokens, 10 * NUM_STEPS, sampling)
    engine.step()
    return time_steps(engine, NUM_STEPS)


def measure_prefix_waiters(num_waiting: int) -> list[float]:
    """Return the durations of steps that compute a prompt which shares nothing with the `num_waiting` in the queue."""
    engine, sampling = make_engine(SchedulerConfig()), SamplingParams(seed=1)
    prefix = tuple(range(4000))
    submit(engine, "first", (*prefix, *[1] * 8), NUM_STEPS, sampling)
    engine.step()
    for index in range(num_waiting):
        submit(engine, str(index), (*prefix, *[index, 2] * 8), NUM_STEPS, sampling)
    submit(engine, "other", tuple(range(10_000, 18_000)), 1, sampling)
    while engine.statistics().num_running < 2:  # until what is left of a step's budget goes to the last
        engine.step()
    return time_steps(engine, 20)


def make_engine(limits: SchedulerConfig) -> Engine:
    """Return an engine whose runner takes no time."""
    info = EngineInfo(
        model="null",
        vocab_size=INFO.vocab_size,
        max_context=INFO.max_context,
        num_blocks=INFO.num_blocks,
        block_size=INFO.block_size,
        system_fingerprint=INFO.system_fingerprint,
    )
    return Engine(NullRunner(), limits, MonotonicClock(), info)


def submit(
    engine: Engine, name: str, tokens: tuple[int, ...], max_tokens: int, sampling: SamplingParams
) -> None:
    """Hand a request to `engine`."""
    engine.handle(
        Submit(Request(request_id=name, token_ids=tokens, sampling=sampling, max_tokens=max_tokens))
    )


def time_steps(engine: Engine, count: int) -> list[float]:
    """Make steps; return how many microseconds each took."""
    durations = []
    for _ in range(count):
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
        report(
            f"{num_sequences:3} sequences of {context} tokens{note}",
            measure(num_sequences, context, num_waiting, sampling),
        )
    report("a long prompt, 900 waiting with another prefix", measure_prefix_waiters(900))


def report(case: str, durations: list[float]) -> None:
    """Print one line."""
    ascending = sorted(durations)
    print(
        f"{case}: median {statistics.median(ascending):.0f} µs, P99 {ascending[int(0.99 * len(ascending))]:.0f} µs"
    )


if __name__ == "__main__":
    main()
