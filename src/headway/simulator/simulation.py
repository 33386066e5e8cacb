"""One simulated measurement from start to end: what `lab/measurement.py` is to an endpoint, with the same result.

result = simulate(RunOptions(endpoint=simulated_endpoint("h100-sxm"), workload="light", arrival="poisson:5"), service, prompts)
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime

from headway.lab.code_corpus import CodeCorpus, standard_library
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import Offer, RunResult, ladder_climb, run_result
from headway.lab.model_list import ServedModel
from headway.lab.run_options import RunOptions
from headway.lab.server_tokens import samples
from headway.lab.token_estimate import TokenCounter, TokenEstimate
from headway.lab.traffic import Traffic, plan_traffic
from headway.lab.workload_spec import needs_lengths
from headway.simulator.loader import Service, SimulatedLoader
from headway.simulator.prompts import PromptMaker
from headway.simulator.talk import Lengths


def simulated_endpoint(machine: str) -> Endpoint:
    """Return what stands for an endpoint in the options of a run, so that every report says that there was none."""
    return Endpoint(host=f"simulated {machine}", port=80, path="")


def simulate(
    options: RunOptions,
    service: Service,
    prompts: PromptMaker,
    *,
    lengths: Lengths | None = None,
    count_tokens: TokenCounter | None = None,
) -> RunResult:
    """Return what a measurement of `service` would find; same options, same result but for the wall clock's label.

    `lengths`: of answers that are known, as of a run to compare with; None = all are as long as they may be.
    `count_tokens`: the model's own tokenizer, where it has one, for workloads of given lengths.
    Raises ConfigError for what cannot be asked, and lengths that do not fit the model.
    """
    traffic = _for_service(plan_traffic(options), service, count_tokens)
    return _at_once(_carried_out(traffic, service, prompts, {} if lengths is None else lengths))


async def _carried_out(
    traffic: Traffic, service: Service, prompts: PromptMaker, lengths: Lengths
) -> RunResult:
    climb = ladder_climb(traffic)
    said = f"Simulated, not measured: {service.described()}."
    see: Callable[..., None] | None = None if climb is None else climb.see
    loader = SimulatedLoader(service, traffic.conversations(), prompts, lengths, see)
    started_at = datetime.now(UTC)
    if climb is None:
        parts = await Offer(loader, traffic).carry_out()
        result = run_result(traffic, parts, ladder=None, started_at=started_at)
    else:
        ladder = await climb.climb(loader)
        result = run_result(traffic, ladder.steps, ladder=ladder, started_at=started_at)
    return replace(result, simulation=said)


def _at_once(running: Coroutine[None, None, RunResult]) -> RunResult:
    """Return what a coroutine gives that never waits, as the loader's are; an event loop would have nothing to do."""
    try:
        running.send(None)
    except StopIteration as done:
        result: RunResult = done.value
        return result
    running.close()
    raise AssertionError("a simulation waited for real time")


def _for_service(traffic: Traffic, service: Service, count_tokens: TokenCounter | None) -> Traffic:
    """Return the traffic for the service's model, as `Traffic.for_model` does for an endpoint's."""
    estimate = None
    if needs_lengths(traffic.workload):
        estimate = _estimate(CodeCorpus(standard_library(), traffic.options.seed), count_tokens)
    model = ServedModel(name=service.name, max_context_tokens=service.runner.max_context)
    return replace(traffic, model=model, token_estimate=estimate)


def _estimate(corpus: CodeCorpus, count_tokens: TokenCounter | None) -> TokenEstimate:
    if count_tokens is None:
        return TokenEstimate()
    texts = list(samples(corpus))
    num_tokens = sum(map(count_tokens, texts))
    return TokenEstimate(chars_per_token=sum(map(len, texts)) / num_tokens, source="server")
