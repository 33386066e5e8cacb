"""What rounds say of two sides, over all figures: a verdict in a sentence. Pure functions over rounds.

Of several figures one soon differs by chance, so *faster* and *slower* are only said where Holm's step-down test (1979)
finds a difference at 5 % over all of them. *Equal* needs no such correction: all are called equal only if each of them is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from scipy import stats

from headway.lab.arrival_grammar import parse_arrival
from headway.lab.arrivals import Closed
from headway.lab.comparison import LEAST_ROUNDS, Comparison, compare
from headway.lab.difference import listed
from headway.lab.distribution import CONFIDENCE
from headway.lab.likeness import MOST_APART, Traits, cached_share, tokens_by, unlike
from headway.lab.measurement import RunResult
from headway.lab.rounds import Rounds, SideName

MOST_FAILED: Final = 0.05
"""A run of which a larger share failed has no figures: those of the rest would be a selection. It is where a p95 that counts
failures becomes infinite."""

Outcome = Literal["faster", "slower", "mixed", "equal", "unknown", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A figure of a run of which less is better."""

    key: str
    name: str
    of: Callable[[RunResult], float | None]


def _rate_cost(result: RunResult) -> float | None:
    """Milliseconds a token, of all users together: only where users wait for answers is it the server that sets the pace."""
    rate = result.summary.output_tok_s
    arrival = result.arrival
    paced = arrival == "trace" or not isinstance(parse_arrival(arrival), Closed)
    return None if paced or not rate else 1000 / rate


COSTS: Final = (
    Cost(key="ttft_p50", name="TTFT p50", of=lambda run: run.summary.ttft.successes.percentiles["p50"]),
    Cost(key="ttft_p95", name="TTFT p95", of=lambda run: run.summary.ttft.successes.percentiles["p95"]),
    Cost(key="itl_mean", name="ITL mean", of=lambda run: run.summary.itl.mean),
    Cost(key="e2e_p50", name="E2E p50", of=lambda run: run.summary.e2e.successes.percentiles["p50"]),
    Cost(key="ms_per_token", name="time per token of all users", of=_rate_cost),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One figure over the rounds, in milliseconds."""

    cost: Cost
    a: tuple[float, ...]
    b: tuple[float, ...]
    comparison: Comparison
    """By itself, but for its judgement, which is the one after Holm's correction."""
    adjusted_p: float | None
    """That both sides are alike in it, corrected; None if a round failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said of B relative to A. `judgement` None: too few rounds."""

    judgement: Outcome | None
    sentence: str
    figures: tuple[Judged, ...]
    against: tuple[str, ...]
    """What speaks against comparing the two, or believing it, in sentences."""


def verdict(done: Rounds, *, least_effect: float) -> Verdict:
    """Judge every figure that all rounds of both sides have. `least_effect`: the smallest ratio that matters, 0.05 for 5 %.

    Raises ValueError for a least effect outside (0, 1).
    """
    rounds, wanted = done.rounds, done.plan.num_rounds
    against = _against(done)
    if len(rounds) < LEAST_ROUNDS:
        missing = LEAST_ROUNDS - len(rounds)
        sentence = f"{len(rounds)} of {wanted} rounds are complete; a verdict takes {missing} more."
        return Verdict(judgement=None, sentence=sentence, figures=(), against=against)
    sides = [(cost, _costs(cost, done.of("A")), _costs(cost, done.of("B"))) for cost in COSTS]
    told = [(cost, a, b) for cost, a, b in sides if a is not None and b is not None]
    figures = judge_all(told, least_effect=least_effect)
    judgement = _outcome([figure.comparison.judgement for figure in figures])
    return Verdict(
        judgement=judgement,
        sentence=_sentence(judgement, figures, least_effect),
        figures=figures,
        against=against,
    )


def judge_all(
    sides: Sequence[tuple[Cost, Sequence[float], Sequence[float]]], *, least_effect: float
) -> tuple[Judged, ...]:
    """Judge figures, each with A's and B's values round by round, with Holm's correction over all of them."""
    return _holm([_judged(cost, a, b, least_effect) for cost, a, b in sides])


def _judged(cost: Cost, a: Sequence[float], b: Sequence[float], least_effect: float) -> Judged:
    found = compare(a, b, least_effect=least_effect)
    return Judged(
        cost=cost,
        a=tuple(a),
        b=tuple(b),
        comparison=found,
        adjusted_p=None if found.ratio is None else _p_value(np.log(np.divide(b, a))),
    )


def _costs(cost: Cost, runs: Sequence[RunResult]) -> list[float] | None:
    """Return a figure of every run, infinite for one that failed too often; None if a run has no such figure."""
    found = []
    for run in runs:
        summary = run.summary
        failed = summary.num_offered - summary.num_ok > MOST_FAILED * summary.num_offered
        value = math.inf if failed else cost.of(run)
        if not value:
            return None
        found.append(value)
    return found


def _p_value(logarithms: "np.typing.NDArray[np.float64]") -> float:
    """Of Student's test that the mean is zero, which the comparison's interval turns around."""
    mean, error = float(logarithms.mean()), float(logarithms.std(ddof=1)) / math.sqrt(len(logarithms))
    if not error:
        return 0.0 if mean else 1.0
    return float(2 * stats.t.sf(abs(mean / error), len(logarithms) - 1))


def _holm(figures: Sequence[Judged]) -> tuple[Judged, ...]:
    """Correct the p-values, and take back what they do not bear out; the order stays."""
    ranked = sorted(
        ((figure.adjusted_p, index) for index, figure in enumerate(figures) if figure.adjusted_p is not None)
    )
    corrected = list(figures)
    worst = 0.0
    for rank, (p_value, index) in enumerate(ranked):
        worst = max(worst, min(1.0, (len(ranked) - rank) * p_value))
        figure = figures[index]
        comparison = figure.comparison
        if worst > 1 - CONFIDENCE and comparison.judgement in ("faster", "slower"):
            comparison = replace(comparison, judgement="unknown")
        corrected[index] = replace(figure, comparison=comparison, adjusted_p=worst)
    return tuple(corrected)


def _outcome(judgements: Sequence[str]) -> Outcome:
    found = set(judgements)
    if "failed" in found:
        return "failed"
    if {"faster", "slower"} <= found:
        return "mixed"
    if "faster" in found:
        return "faster"
    if "slower" in found:
        return "slower"
    return "equal" if found == {"equal"} else "unknown"


def _sentence(judgement: Outcome, figures: Sequence[Judged], least_effect: float) -> str:
    if judgement == "failed":
        return figures[0].comparison.sentence
    percent = f"{100 * least_effect:.3g}%"
    said = []
    for word in ("faster", "slower"):
        differing = [_times(figure) for figure in figures if figure.comparison.judgement == word]
        if differing:
            said.append(f"{word} than A in {listed(differing)}")
    equal = [figure.cost.name for figure in figures if figure.comparison.judgement == "equal"]
    if equal:
        said.append(f"equal to A to within {percent} in {listed(equal)}")
    if not said:
        return (
            f"It cannot be told whether B differs from A by {percent} in any figure; more rounds tell more."
        )
    rest = any(figure.comparison.judgement == "unknown" for figure in figures)
    return f"B is {', '.join(said)}{'; of the rest it cannot be told' if rest else ''}."


def _times(figure: Judged) -> str:
    ratio, interval = figure.comparison.ratio, figure.comparison.interval
    assert ratio is not None
    assert interval is not None
    return f"{figure.cost.name} ({ratio:.3g} times, 95 % interval {interval[0]:.3g} to {interval[1]:.3g})"


def _against(done: Rounds) -> tuple[str, ...]:
    if not done.rounds:
        return ()
    found = list(unlike(_traits("A", done.of("A")), _traits("B", done.of("B"))))
    if done.same_server:
        found.append(
            "Both sides are the same model of one endpoint, so B was asked with other prompts than A, whose would be "
            "cached; of `light`'s 864 some repeat."
        )
    sides: tuple[SideName, ...] = ("A", "B")
    for name in sides:
        shares = [cached_share(run.exchanges) for run in done.of(name)]
        known = [share for share in shares if share is not None]
        if known and max(known) - min(known) > MOST_APART:
            found.append(
                f"Of {name}'s prompts {min(known):.0%} to {max(known):.0%} came from the server's cache, round by round: "
                "do both sides ask one server?"
            )
    return tuple(found)


def _traits(name: str, results: Sequence[RunResult]) -> Traits:
    exchanges = [exchange for result in results for exchange in result.exchanges]
    num_ok = sum(result.summary.num_ok for result in results)
    return Traits(
        name=name,
        tokens_by=tokens_by(exchanges),
        tokens_per_answer=sum(result.summary.output_tokens for result in results) / num_ok
        if num_ok
        else None,
        cached_share=cached_share(exchanges),
        num_failed=len(exchanges) - num_ok,
        num_offered=len(exchanges),
        num_others=sum(
            result.server.num_other_requests or 0 for result in results if result.server is not None
        ),
        believable=all(result.believable for result in results),
    )
