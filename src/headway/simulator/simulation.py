"""One simulated measurement from start to end: what `lab/measurement.py` is to an endpoint, with the same result.

options = RunOptions(endpoint=simulated_endpoint("h100-sxm"), workload="light", arrival="poisson:5")
result = simulate(options, service, prompts)
"""

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headway.lab.code_corpus import CodeCorpus, standard_library
from headway.lab.drive import Offered
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.ladder_run import LadderRun, LadderStep
from headway.lab.measurement import RunResult, ladder_climb, run_result
from headway.lab.model_list import ServedModel
from headway.lab.offer import Offer
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
    traffic, parts, ladder = _at_once(_offered(options, service, prompts, lengths, count_tokens))
    result = run_result(traffic.options, {"": traffic}, parts, ladder=ladder, started_at=datetime.now(UTC))
    return replace(result, simulation=f"Simulated, not measured: {service.described()}.")


def records(
    options: RunOptions,
    service: Service,
    prompts: PromptMaker,
    *,
    lengths: Lengths | None = None,
    count_tokens: TokenCounter | None = None,
) -> list[Exchange]:
    """Return what `simulate` makes its figures of, for who wants a few: most of a short simulation's time goes into them."""
    _, parts, _ = _at_once(_offered(options, service, prompts, lengths, count_tokens))
    return [exchange for part in parts for exchange in part.exchanges]


_Carried = tuple[Traffic, "Sequence[Offered | LadderStep]", LadderRun | None]


async def _offered(
    options: RunOptions,
    service: Service,
    prompts: PromptMaker,
    lengths: Lengths | None,
    count_tokens: TokenCounter | None,
) -> _Carried:
    """Carry the load out; return its parts, and the ladder where it is one."""
    traffic = _for_service(plan_traffic(options), service, count_tokens)
    climb = ladder_climb(traffic)
    see = None if climb is None else climb.see
    loader = SimulatedLoader(service, traffic.conversations(), prompts, lengths or {}, see)
    if climb is None:
        return traffic, await Offer(loader, traffic).carry_out(), None
    ladder = await climb.climb(loader)
    return traffic, ladder.steps, ladder


def _at_once(running: Coroutine[None, None, _Carried]) -> _Carried:
    """Return what a coroutine gives that never waits, as the loader's are; an event loop would have nothing to do."""
    try:
        running.send(None)
    except StopIteration as done:
        carried: _Carried = done.value
        return carried
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
