"""Finds what serving adds to the engine's time: real runs of a server on this machine beside the simulation of the same.

By how much long prompts that are not cached take longer, or shorter, than was simulated is by how much the machine computes
slower while it serves, or is slower than it was when steps were timed: neighbours take a quarter of it for minutes. What is
then left over of the inter-token latency of one stream and of many is what steps take longer while they are served: the
gateway and the client share the processor. What is left over of TTFT, of short prompts and of long ones that are cached, is
what the way to the engine takes: HTTP, template, tokenizer, the hop.

The runs go round and round, each time with other prompts, so that neighbours' seconds fall on all of them.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

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
ROUNDS = 5
PASSES = 5
LEAST, MOST = 0.5, 2.0
"""Factors beyond these are no machine's: something failed."""
_LEFT_OUT = 1
"""Requests at the start of a run: its connections are new."""

Measure = Callable[[RunOptions], Sequence[Exchange]]
"""Carries out a run on the server that is measured."""
Figure = Callable[[Exchange], float | None]


class _Run(NamedTuple):
    options: RunOptions
    exchanges: Sequence[Exchange]


_Simulate = Callable[[Sequence[_Run]], list[Exchange]]


def time_serving(
    found: Calibration, scheduler: SchedulerConfig, prompts: PromptMaker, like: RunOptions, measure: Measure
) -> Calibration:
    """Return the calibration with what serving adds; `like` says which endpoint is asked.

    Raises ConfigError where the server's answers fail.
    """
    _answered(measure(warm_up(like)))
    one = replace(like, workload="light", arrival="closed:1", num_requests=10, output_tokens=32)
    many = replace(one, arrival=f"closed:{MANY}", num_requests=4 * MANY)
    cached = replace(one, workload="shared-prefix:1:6", num_requests=6, output_tokens=4)
    long = replace(one, workload="medium", num_requests=3, output_tokens=4)
    rounds = [
        [
            _Run(options, _answered(measure(options)))
            for options in _of_round(number, (one, many, cached, long))
        ]
        for number in range(ROUNDS)
    ]
    one_runs, many_runs, cached_runs, long_runs = map(list, zip(*rounds, strict=True))

    def predicted(**costs: object) -> _Simulate:
        """Return what simulates runs, with these costs as if they were none."""
        costed = msgspec.structs.replace(found, **costs)
        service = Service(
            name=costed.model,
            runner=costed.info(),
            step=CalibratedCost(costed),
            serving=costed.serving,
            scheduler=scheduler,
        )
        return lambda runs: [
            exchange
            for run in runs
            for exchange in _kept(records(run.options, service, prompts, lengths=lengths_of(run.exchanges)))
        ]

    for _ in range(PASSES):  # each cost is what is left over by the others
        found = msgspec.structs.replace(found, serving_factor=_factor(found, long_runs, predicted()))
        simulate = predicted(serving_step_ns=(0.0, 0.0))
        more = [_left_over(tpot_ns, runs, simulate) for runs in (one_runs, many_runs)]
        found = msgspec.structs.replace(found, serving_step_ns=fit_line((1.0, float(MANY)), more))
        simulate = predicted(request_ns=0.0, prompt_token_ns=0.0)
        ways = (one_runs, cached_runs)
        waits = [_left_over(ttft_ns, runs, simulate) for runs in ways]
        # A millisecond counts for more in a TTFT of twenty than in one of two hundred.
        ttfts = [max(1.0, statistics.median(_of(ttft_ns, real) for real in _real(runs))) for runs in ways]
        request_ns, prompt_token_ns = fit_sum([_asked(_real(runs)) for runs in ways], waits, ttfts)
        found = msgspec.structs.replace(found, request_ns=request_ns, prompt_token_ns=prompt_token_ns)
    return found


def _factor(found: Calibration, runs: Sequence[_Run], simulate: _Simulate) -> float:
    """Return `serving_factor`, by what is left of TTFTs beside the way to the engine."""
    ratios = []
    for real, predicted in zip(_real(runs), simulate(runs), strict=True):
        usage = real.answer.usage
        num_tokens = 0 if usage is None else usage.prompt_tokens or 0
        way_ns = found.serving.until_queued_ns(num_tokens)
        ratios.append((_of(ttft_ns, real) - way_ns) / max(1.0, _of(ttft_ns, predicted) - way_ns))
    return min(max(found.serving_factor * statistics.median(ratios), LEAST), MOST)


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


def _of_round(number: int, runs: Sequence[RunOptions]) -> list[RunOptions]:
    """Return runs of which none has another's prompts, nor the warm-up's: they would be cached."""
    first = 2 + number * len(runs)
    return [replace(options, seed=options.seed + seed) for seed, options in enumerate(runs, first)]


def _real(runs: Sequence[_Run]) -> list[Exchange]:
    return [exchange for run in runs for exchange in _kept(run.exchanges)]


def _left_over(figure: Figure, runs: Sequence[_Run], simulate: _Simulate) -> float:
    """Return the median of what real requests took longer than simulated ones, in ns."""
    pairs = zip(_real(runs), simulate(runs), strict=True)
    return statistics.median(_of(figure, real) - _of(figure, predicted) for real, predicted in pairs)


def _of(figure: Figure, exchange: Exchange) -> float:
    return float(figure(exchange) or 0.0)


def _kept(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return sorted(exchanges, key=lambda exchange: (exchange.conversation, exchange.turn))[_LEFT_OUT:]


def _asked(exchanges: Sequence[Exchange]) -> tuple[float, float]:
    """Return what the median request of a run was: one request, its prompt's tokens."""
    usages = [exchange.answer.usage for exchange in exchanges]
    prompts = [
        usage.prompt_tokens for usage in usages if usage is not None and usage.prompt_tokens is not None
    ]
    return 1.0, float(statistics.median(prompts))
