"""What `headway bench compare` prints: a verdict and its figures as text for people and as JSON for scripts."""

from collections.abc import Iterator, Sequence

import numpy as np

from headway import __version__
from headway.cli.table import aligned
from headway.lab.figure_text import number
from headway.lab.measurement import RunResult
from headway.lab.rounds import Rounds
from headway.lab.run_options import RunOptions
from headway.lab.slo import limits_ms
from headway.lab.verdict import Judged, Verdict

_HEAD = ("ms", "A", "B", "B ÷ A (95 % interval)", "p, corrected", "B is")


def as_json(done: Rounds, found: Verdict, least_effect: float) -> dict[str, object]:
    """Return a comparison as JSON's types."""
    options = done.plan.a
    return {
        "headway": __version__,
        "verdict": {"judgement": found.judgement, "sentence": found.sentence},
        "against": list(found.against),
        "least_effect": least_effect,
        "interrupted": done.interrupted,
        "a": _side(done.plan.a),
        "b": _side(done.plan.b),
        "workload": options.workload,
        "arrival": options.arrival,
        "requests": options.num_requests,
        "max_output_tokens": options.output_tokens,
        "slo": None if options.slo is None else limits_ms(options.slo),
        "seed": options.seed,
        "figures": {figure.cost.key: _figure(figure) for figure in found.figures},
        "rounds": [
            {"order": "".join(each.order), "a": _turn(each.a), "b": _turn(each.b)} for each in done.rounds
        ],
    }


def as_text(done: Rounds, found: Verdict) -> str:
    """Return a comparison for a terminal."""
    return "\n".join(_lines(done, found))


def _lines(done: Rounds, found: Verdict) -> Iterator[str]:
    options = done.plan.a
    yield ("Interrupted. " if done.interrupted else "") + found.sentence
    yield from (f"  {each}" for each in found.against)
    yield ""
    for name, side in (("A", done.plan.a), ("B", done.plan.b)):
        yield f"{name}: {side.model or 'no model yet'} at {side.endpoint.authority}"
    if done.rounds:
        order = " ".join("".join(each.order) for each in done.rounds)
        requests = done.rounds[0].a.summary.num_offered
        yield (
            f"{options.workload}, {done.rounds[0].a.arrival}, {len(done.rounds)} rounds of {requests} requests of each, "
            f"in this order: {order}"
        )
        if options.slo is not None:
            yield f"goodput: A {_goodput(done.of('A')):.1%}, B {_goodput(done.of('B')):.1%}"
    if found.figures:
        yield ""
        yield from aligned([_HEAD, *(_row(figure) for figure in found.figures)], "<>>>><")


def _row(figure: Judged) -> tuple[str, ...]:
    comparison = figure.comparison
    ratio = "-"
    if comparison.ratio is not None and comparison.interval is not None:
        low, high = comparison.interval
        ratio = f"{comparison.ratio:.3g} ({low:.3g} to {high:.3g})"
    p_value = "-" if figure.adjusted_p is None else f"{figure.adjusted_p:.2g}"
    judged = {"unknown": "not known", "failed": "not comparable"}.get(
        comparison.judgement, comparison.judgement
    )
    return figure.cost.name, _ms(figure.a), _ms(figure.b), ratio, p_value, judged


def _ms(rounds: tuple[float, ...]) -> str:
    """The geometric mean, of which the ratio is one."""
    mean = float(np.exp(np.mean(np.log(rounds))))
    return number(mean) if np.isfinite(mean) else "-"


def _goodput(results: Sequence[RunResult]) -> float:
    found = [each.summary.goodput for each in results if each.summary.goodput is not None]
    return sum(each.num_met for each in found) / max(1, sum(each.num_offered for each in found))


def _side(options: RunOptions) -> dict[str, object]:
    return {"endpoint": f"{options.endpoint.authority}{options.endpoint.path}", "model": options.model}


def _figure(figure: Judged) -> dict[str, object]:
    comparison = figure.comparison
    return {
        "judgement": comparison.judgement,
        "ratio": comparison.ratio,
        "ratio_ci95": comparison.interval,
        "adjusted_p": figure.adjusted_p,
        "a_ms": [_finite(value) for value in figure.a],
        "b_ms": [_finite(value) for value in figure.b],
    }


def _turn(result: RunResult) -> dict[str, object]:
    summary = result.summary
    return {
        "seed": result.options.seed,
        "started_at": result.started_at.isoformat(),
        "offered": summary.num_offered,
        "ok": summary.num_ok,
        "errors": dict(summary.failures),
        "goodput": None if summary.goodput is None else summary.goodput.fraction,
        "believable": result.believable,
    }


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"
