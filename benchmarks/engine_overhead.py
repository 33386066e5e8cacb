"""How long the engine's own Python takes per step, outside the runner: `python benchmarks/engine_overhead.py`.

The runner answers at once, so that everything measured is scheduling, building the step and reporting. Prints one line per
case: median and 99th percentile in microseconds, of decode steps and, in the last case, of steps that compute a long prompt
while a full queue waits that shares one prefix of 4,000 tokens. It always draws the same token, so with few sequences every
step carries drafts, all of them right: the dearest kind of step.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, get_args
from unittest.mock import patch

from headway.core.clock import NS_PER_S, MonotonicClock
from headway.core.config import SchedulerConfig
from headway.core.messages import EngineInfo, Submit
from headway.core.request import Request, ServiceClass
from headway.core.sampling import SamplingParams
from headway.engine import engine as engine_module
from headway.engine.engine import Engine
from headway.runner.step import RunnerInfo, Step, StepResult
from step_only import StepOnlyRunner

INFO = RunnerInfo(
    vocab_size=50_000, max_context=8192, num_blocks=16_384, block_size=16, system_fingerprint="null"
)
NUM_STEPS = 400
CLASSES: tuple[ServiceClass, ...] = get_args(ServiceClass)


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


def measure_planning(num_waiting: int, num_running: int) -> dict[str, dict[str, float]]:
    """Return `p50` and `p99` in microseconds of `step_us`, all but the runner, and of `plan_us`, the plan within it.

    Decode steps of `num_running` sequences while `num_waiting` wait, of all classes and eight tenants, with deadlines.
    """
    engine, random = make_engine(SchedulerConfig(max_num_seqs=num_running)), Random(0)
    sampling = SamplingParams(seed=1)
    num_tenants, context = 8, 500
    for index in range(num_running + num_waiting):
        # Those that run are high, so that nobody is preempted for one that waits: that would be another kind of step.
        service_class: ServiceClass = random.choice(CLASSES) if index >= num_running else "high"
        request = Request(
            request_id=str(index),
            token_ids=tuple(random.randrange(8, INFO.vocab_size) for _ in range(context)),
            sampling=sampling,
            max_tokens=10 * NUM_STEPS,
            service_class=service_class,
            tenant=f"t{random.randrange(num_tenants)}",
            ttft_deadline_ns=random.randrange(10, 100) * NS_PER_S,
        )
        engine.handle(Submit(request))
    while engine.statistics().num_waiting > num_waiting or engine.statistics().num_running < num_running:
        engine.step()
    planned: list[float] = []
    timed = timed_plan(planned)
    with patch.object(engine_module, "plan", timed):
        steps = time_steps(engine, NUM_STEPS)
    return {"step_us": spread(steps), "plan_us": spread(planned)}


def timed_plan(durations: list[float]) -> Callable[..., Any]:
    """Return the engine's plan, which notes how many microseconds it takes."""
    plan = engine_module.plan  # type: ignore[attr-defined]

    def timed(*arguments: Any, **named: Any) -> Any:
        before_ns = time.perf_counter_ns()
        found = plan(*arguments, **named)
        durations.append((time.perf_counter_ns() - before_ns) / 1_000)
        return found

    return timed


def spread(durations: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ascending = sorted(durations)
    return {
        "p50": round(statistics.median(ascending), 1),
        "p99": round(ascending[int(0.99 * len(ascending))], 1),
    }


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
    planning = measure_planning(num_waiting=256, num_running=64)
    for what, found in (("step", planning["step_us"]), ("plan", planning["plan_us"])):
        print(
            f" 64 sequences, 256 waiting of all classes: {what}, median {found['p50']} µs, P99 {found['p99']} µs"
        )


def report(case: str, durations: list[float]) -> None:
    """Print one line."""
    ascending = sorted(durations)
    print(
        f"{case}: median {statistics.median(ascending):.0f} µs, P99 {ascending[int(0.99 * len(ascending))]:.0f} µs"
    )


if __name__ == "__main__":
    main()
