"""Times the engine's own Python: steps of a runner that answers at once, by how many sequences decode."""

import statistics
import time

from headway.core.clock import ManualClock, MonotonicClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.runner.step import RunnerInfo, Step
from headway.simulator.fit import fit_line
from headway.simulator.runner import PredictingRunner

SEQUENCES = (1, 8, 32, 64)
NUM_STEPS = 200
PROMPT_TOKENS = 200


class _Free:
    """A step cost of nothing."""

    def step_ns(self, step: Step) -> int:  # noqa: ARG002 - as StepCost has it
        return 0


def time_engine(config: SchedulerConfig) -> tuple[float, float]:
    """Return the nanoseconds of a step, and of each of its sequences, on this machine."""
    medians = [_median_ns(count, config) for count in SEQUENCES]
    return fit_line(SEQUENCES, medians)


def _median_ns(num_sequences: int, config: SchedulerConfig) -> float:
    """Return what a decode step of so many sequences takes."""
    info = RunnerInfo(
        vocab_size=50_000,
        max_context=4096,
        num_blocks=8192,
        block_size=16,
        system_fingerprint="none",
    )
    runner = PredictingRunner(info, _Free(), ManualClock())
    limits = SchedulerConfig(
        max_num_seqs=num_sequences,
        max_prefill_tokens=num_sequences * PROMPT_TOKENS,
        max_draft_tokens=0,
        policy=config.policy,
    )
    engine = Engine(runner, limits, MonotonicClock(), engine_info("none", runner))
    for index in range(num_sequences):
        request = Request(
            request_id=str(index),
            token_ids=tuple((index * 7919 + position) % 50_000 for position in range(PROMPT_TOKENS)),
            sampling=SamplingParams(temperature=0.0),
            max_tokens=3 * NUM_STEPS,
        )
        engine.handle(Submit(request))
    while (
        engine.step() is not None and engine.statistics().prefill_tokens_total < num_sequences * PROMPT_TOKENS
    ):
        pass
    durations = []
    for _ in range(NUM_STEPS):
        before_ns = time.perf_counter_ns()
        engine.step()
        durations.append(time.perf_counter_ns() - before_ns)
    return statistics.median(durations)
