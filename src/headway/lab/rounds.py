"""Rounds in which two sides take turns, so that what the machine does meanwhile does to both: who is measured when.

One of them is loaded at a time, for they may share a machine. Who begins is drawn by the seed and then alternates (AB, BA,
AB), so that a drift favours neither. A round's seed is its own and both sides', so both are asked the same; but where both
are the same model of one endpoint, B has prompts of its own, for it would find A's in the server's cache.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal

from headway.core.errors import ConfigError
from headway.lab.arrival_grammar import parse_arrival
from headway.lab.ladder_rules import LadderRules
from headway.lab.measurement import RunResult, measure
from headway.lab.run_options import RunOptions

SideName = Literal["A", "B"]
WARM_UP_REQUESTS: Final = 3
"""The first answers of a server that has just started take longer, and the second as long as all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked of both sides; `a` and `b` differ in endpoint and model at most. The first's seed is the plan's."""

    a: RunOptions
    b: RunOptions
    num_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn of each side."""

    number: int
    """From 1."""
    order: tuple[SideName, SideName]
    a: RunResult
    b: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds that are complete, and what they were to be."""

    plan: Plan
    """With the models that were found."""
    rounds: tuple[Round, ...]
    same_server: bool
    """Whether both sides are the same model of one endpoint."""
    interrupted: bool

    def of(self, side: SideName) -> list[RunResult]:
        """Return one side's runs, round by round."""
        return [each.a if side == "A" else each.b for each in self.rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is measured next. `number` 0: the warm-up, which does not count."""

    number: int
    side: SideName


class _Interrupted(Exception):
    """A measurement was cancelled, and returned what it had."""


Measure = Callable[[RunOptions], Awaitable[RunResult]]


def orders(num_rounds: int, seed: int) -> list[tuple[SideName, SideName]]:
    """Return who begins each round: the first by the seed, then by turns."""
    a_first: tuple[SideName, SideName] = ("A", "B")
    b_first: tuple[SideName, SideName] = ("B", "A")
    a_begins = int(Random(seed).random() < 0.5)
    return [a_first if (number + a_begins) % 2 else b_first for number in range(num_rounds)]


async def take_turns(
    plan: Plan,
    on_turn: Callable[[Turn], None] = lambda _: None,
    on_round: Callable[[Round], None] = lambda _: None,
    *,
    measure: Measure = measure,
) -> Rounds:
    """Warm both sides up and measure them in rounds; if cancelled, return the rounds that are complete.

    Raises ConfigError for what cannot be asked, or a side that answers nothing.
    """
    if plan.a.arrival is not None and isinstance(parse_arrival(plan.a.arrival), LadderRules):
        raise ConfigError(
            "Sides take turns at one load, not up a ladder: write a rate, as in --arrival poisson:5."
        )
    seed = plan.a.seed
    done: list[Round] = []
    interrupted = False
    same_server = False
    try:
        on_turn(Turn(number=0, side="A"))
        a = await _warmed_up(plan.a, "A", measure)
        on_turn(Turn(number=0, side="B"))
        b = await _warmed_up(plan.b, "B", measure)
        plan = replace(plan, a=a, b=b)
        same_server = (a.endpoint.authority, a.endpoint.path, a.model) == (
            b.endpoint.authority,
            b.endpoint.path,
            b.model,
        )
        for number, order in enumerate(orders(plan.num_rounds, seed), 1):
            found: dict[SideName, RunResult] = {}
            for side in order:
                on_turn(Turn(number=number, side=side))
                own_seed = seed + number + (plan.num_rounds if same_server and side == "B" else 0)
                result = await measure(replace(a if side == "A" else b, seed=own_seed))
                if result.interrupted:
                    raise _Interrupted
                found[side] = result
            done.append(Round(number=number, order=order, a=found["A"], b=found["B"]))
            on_round(done[-1])
    except (asyncio.CancelledError, _Interrupted):
        interrupted = True
    return Rounds(plan=plan, rounds=tuple(done), same_server=same_server, interrupted=interrupted)


async def _warmed_up(options: RunOptions, name: SideName, measure: Measure) -> RunOptions:
    """Ask a few requests that do not count, and return the options with the model that answered."""
    few = replace(
        options,
        arrival="closed:1",
        replay=replace(options.replay, speed=None, spread_ns=None),  # of times, which the arrival replaces
        num_requests=WARM_UP_REQUESTS,
        duration_ns=None,
    )
    result = await measure(few)
    if result.interrupted:
        raise _Interrupted
    if not result.summary.num_ok:
        told = ", ".join(result.summary.failures)
        raise ConfigError(
            f"{name}, {options.endpoint.authority}, answered nothing while it was warmed up: {told}."
        )
    return replace(options, model=result.model)
