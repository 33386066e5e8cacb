"""Simulated services whose steps cost what a test says."""

from collections.abc import Callable

from headway.core.config import SchedulerConfig
from headway.lab.measurement import RunResult
from headway.lab.run_options import RunOptions
from headway.runner.step import RunnerInfo, Step
from headway.simulator.costs import ServingCost
from headway.simulator.loader import Service
from headway.simulator.prompts import EstimatedPrompts
from headway.simulator.routing import Route
from headway.simulator.simulation import simulate, simulated_endpoint
from headway.simulator.talk import Lengths

MS = 1_000_000
VOCABULARY = 1000
PLAIN = SchedulerConfig(policy="fcfs", itl_target_s=None, max_draft_tokens=0, max_prefill_tokens=100_000)
"""First come, first served, whole prompts: what a test can follow by hand."""


class Cost:
    """A `StepCost` by a function of the step."""

    def __init__(self, step_ns: Callable[[Step], int]) -> None:
        self.step_ns = step_ns


def runner_info(*, num_blocks: int = 4096, max_context: int = 8192) -> RunnerInfo:
    return RunnerInfo(
        vocab_size=VOCABULARY,
        max_context=max_context,
        num_blocks=num_blocks,
        block_size=16,
        system_fingerprint="simulated",
    )


def service(
    step_ns: Callable[[Step], int] = lambda _: 10 * MS,
    *,
    scheduler: SchedulerConfig = PLAIN,
    num_replicas: int = 1,
    route: Route = "least-loaded",
    serving: ServingCost | None = None,
    info: RunnerInfo | None = None,
) -> Service:
    return Service(
        name="model",
        runner=info or runner_info(),
        step=Cost(step_ns),
        serving=serving or ServingCost(),
        scheduler=scheduler,
        num_replicas=num_replicas,
        route=route,
    )


def run_on(
    simulated: Service,
    *,
    workload: str = "light",
    arrival: str = "closed:1",
    num_requests: int = 4,
    output_tokens: int = 3,
    seed: int = 0,
    lengths: Lengths | None = None,
) -> RunResult:
    options = RunOptions(
        endpoint=simulated_endpoint("test"),
        workload=workload,
        arrival=arrival,
        num_requests=num_requests,
        output_tokens=output_tokens,
        seed=seed,
    )
    return simulate(options, simulated, EstimatedPrompts(VOCABULARY), lengths=lengths)
