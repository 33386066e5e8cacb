"""Finds what serving adds to the engine's time: real runs of a server on this machine, less the simulation of the same.

What is left over of the inter-token latency of one stream and of many is what steps take longer while they are served: the
gateway and the client share the processor. What is left over of TTFT, of short prompts and of long ones that are cached, is
what the way to the engine takes: HTTP, template, tokenizer, the hop. What is left over of long prompts that are not cached
beyond that is what computing them takes longer.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.lab.exchange import Exchange
from headway.lab.latency import tpot_ns, ttft_ns
from headway.lab.run_options import RunOptions
from headway.simulator.calibration import CalibratedCost, Calibration
from headway.simulator.fit import fit_line, fit_sum
from headway.simulator.loader import Service
from headway.simulator.prompts import PromptMaker
from headway.simulator.simulation import records
from headway.simulator.talk import lengths_of

MANY = 12
"""Streams at once in the run that has many."""
_LEFT_OUT = 1
"""Requests at the start of a run: its connections are new."""

Measure = Callable[[RunOptions], Sequence[Exchange]]
"""Carries out a run on the server that is measured."""


def time_serving(
    found: Calibration, scheduler: SchedulerConfig, prompts: PromptMaker, like: RunOptions, measure: Measure
) -> Calibration:
    """Return the calibration with what serving adds; `like` says which endpoint is asked.

    Raises ConfigError where the server's answers fail.
    """
    _answered(measure(warm_up(like)))
    one = replace(like, workload="light", arrival="closed:1", num_requests=30, output_tokens=32)
    many = replace(one, arrival=f"closed:{MANY}", num_requests=16 * MANY)
    cached = replace(one, workload="shared-prefix:1:12", num_requests=12, output_tokens=4)
    long = replace(one, workload="medium", num_requests=8, output_tokens=4)
    real = [_answered(measure(options)) for options in (one, many, cached, long)]

    def simulated(options: RunOptions, exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
        service = Service(
            name=found.model,
            runner=found.info(),
            step=CalibratedCost(found),
            serving=found.serving,
            scheduler=scheduler,
        )
        return records(options, service, prompts, lengths=lengths_of(exchanges))

    pairs = [simulated(options, exchanges) for options, exchanges in zip((one, many), real, strict=False)]
    more = [_median(tpot_ns, real[run]) - _median(tpot_ns, pairs[run]) for run in (0, 1)]
    found = msgspec.structs.replace(found, serving_step_ns=fit_line((1.0, float(MANY)), more))
    runs = ((one, real[0]), (cached, real[2]), (long, real[3]))
    ttfts = [_median(ttft_ns, exchanges) for _, exchanges in runs]
    waits = [
        ttft - _median(ttft_ns, simulated(options, exchanges))
        for ttft, (options, exchanges) in zip(ttfts, runs, strict=True)
    ]
    asked = [_asked(exchanges) for _, exchanges in runs]
    # A millisecond counts for more in a TTFT of twenty than in one of a second.
    request_ns, prompt_token_ns, serving_row_ns = fit_sum(asked, waits, [max(1.0, ttft) for ttft in ttfts])
    return msgspec.structs.replace(
        found, request_ns=request_ns, prompt_token_ns=prompt_token_ns, serving_row_ns=serving_row_ns
    )


def warm_up(like: RunOptions) -> RunOptions:
    """Return a run that a new server must have behind it: SmolLM2's took twice as long for its first seconds here.

    Its prompts are no other workload's, so that none of theirs is cached.
    """
    return replace(
        like,
        workload="context:64:repeat",
        arrival=f"closed:{MANY}",
        num_requests=10 * MANY,
        output_tokens=32,
        seed=like.seed + 1,
    )


def _answered(exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
    for exchange in exchanges:
        if exchange.answer.failure is not None:
            raise ConfigError(f"The server failed while it was measured: {exchange.answer.failure.message}")
    return exchanges


def _median(figure: Callable[[Exchange], float | None], exchanges: Sequence[Exchange]) -> float:
    """Return the median of those that have the figure, in ns; 0 where none has."""
    values = [value for exchange in _kept(exchanges) if (value := figure(exchange)) is not None]
    return float(statistics.median(values)) if values else 0.0


def _kept(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return sorted(exchanges, key=lambda exchange: (exchange.conversation, exchange.turn))[_LEFT_OUT:]


def _asked(exchanges: Sequence[Exchange]) -> tuple[float, float, float]:
    """Return what the median request of a run was: one request, its prompt's tokens, those of them that were computed."""
    usages = [exchange.answer.usage for exchange in _kept(exchanges)]
    prompts = [
        usage.prompt_tokens for usage in usages if usage is not None and usage.prompt_tokens is not None
    ]
    computed = [
        usage.prompt_tokens - (usage.cached_tokens or 0)
        for usage in usages
        if usage is not None and usage.prompt_tokens is not None
    ]
    return 1.0, float(statistics.median(prompts)), float(statistics.median(computed))
