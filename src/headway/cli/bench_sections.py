"""The parts of `headway bench`'s text that only some runs have: turns, parts, the cache, concurrency, what latency follows.

Each yields nothing where it has nothing to say. It measures nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from headway.cli.table import aligned
from headway.lab.breakdown import Part
from headway.lab.distribution import Distribution
from headway.lab.figure_text import number, percentile_text
from headway.lab.interval_fit import Fit, IntervalModel
from headway.lab.summary import Summary

NOT_TOLD = "-"
"""Any terminal's font has it."""
_NAMED_TURN = 5
"""Latency grows with every turn: by the fifth a conversation is what a conversation is."""
_MOST_ROWS = 8
"""Of a table beside the main one: what is printed should fit a screen."""
_LEAST_OF_LEVEL = 5
"""Requests at two levels of concurrency, so that there is a curve to show."""


def turns(summary: Summary) -> Iterator[str]:
    """Tell each turn, and name the fifth."""
    if not summary.by_turn:
        return
    yield ""
    yield from _parts("turn", {str(turn): found for turn, found in summary.by_turn.items()})
    fifth = summary.by_turn.get(_NAMED_TURN)
    if fifth is not None and fifth.ttft.successes.n:
        first = summary.by_turn[min(summary.by_turn)].ttft.successes.percentiles["p50"]
        beside = "" if first is None else f"; of the first {number(first)}"
        yield f"TTFT of the fifth turn: {with_interval(fifth.ttft.successes, 'p50')} ms{beside}"


def labels(summary: Summary) -> Iterator[str]:
    """Tell each part of a workload: L11's table, where the parts are lengths of context."""
    if summary.by_label:
        yield ""
        yield from _parts("part", summary.by_label)


def concurrency(summary: Summary) -> Iterator[str]:
    """Tell the curve of L13."""
    crowds = [crowd for crowd in summary.by_concurrency if crowd.num_ok]
    if sum(crowd.num_ok >= _LEAST_OF_LEVEL for crowd in crowds) < 2:
        return
    names = [
        str(crowd.most) if crowd.least == crowd.most else f"{crowd.least} to {crowd.most}" for crowd in crowds
    ]
    rows = [
        ("in flight", "TTFT p50 (95 % interval), ms", "p95", "TPOT p50", "E2E p50", "tokens/s", "of all", "n")
    ]
    rows += [
        (
            name,
            with_interval(crowd.ttft.successes, "p50"),
            percentile(crowd.ttft.successes, "p95"),
            percentile(crowd.tpot.successes, "p50"),
            percentile(crowd.e2e.successes, "p50"),
            percentile(crowd.request_tok_s, "p50"),
            "-" if crowd.output_tok_s is None else number(crowd.output_tok_s),
            f"{crowd.num_ok:,}",
        )
        for name, crowd in zip(names, crowds, strict=True)
    ]
    yield ""
    yield from aligned(rows[: 1 + _MOST_ROWS], "<>>>>>>>")
    if len(rows) > 1 + _MOST_ROWS:
        yield f"  and {len(rows) - 1 - _MOST_ROWS} rows of more in flight, which --json shows"


def sentences(summary: Summary) -> Iterator[str]:
    """Tell what the cache did, and what prefill and decode follow."""
    said = [*_cache(summary), *_prefill(summary), *_decode(summary)]
    if said:
        yield ""
        yield from said


def percentile(found: Distribution, name: str) -> str:
    """Return a percentile as text."""
    value = found.percentiles[name]
    return NOT_TOLD if value is None else number(value)


def with_interval(found: Distribution, name: str) -> str:
    """Return a percentile with its interval as text."""
    return percentile_text(found, name, NOT_TOLD)


def _parts(what: str, parts: Mapping[str, Part]) -> Iterator[str]:
    rows = [
        (what, "TTFT p50 (95 % interval), ms", "p95", "TPOT p50", "E2E p50", "prompt tokens", "cached", "n")
    ]
    for name, found in list(parts.items())[:_MOST_ROWS]:
        ttft, cached = found.ttft.successes, found.cached_share
        rows.append(
            (
                name,
                with_interval(ttft, "p50"),
                percentile(ttft, "p95"),
                percentile(found.tpot.successes, "p50"),
                percentile(found.e2e.successes, "p50"),
                percentile(found.prompt_tokens, "p50"),
                "-" if cached is None else f"{cached:.0%}",
                f"{found.num_ok:,}",
            )
        )
    yield from aligned(rows, "<>>>>>>>")
    if len(parts) > _MOST_ROWS:
        yield f"and {len(parts) - _MOST_ROWS} more, which --json shows"


def _cache(summary: Summary) -> Iterator[str]:
    found = summary.by_cache
    if found is None or not (found.cached.n and found.cached_share):
        return
    cold = (
        f"{with_interval(found.cold, 'p50')} ms cold ({found.cold.n:,})"
        if found.cold.n
        else "no request cold"
    )
    yield (
        f"Cache: TTFT p50 {with_interval(found.cached, 'p50')} ms with cached tokens ({found.cached.n:,}), {cold}; "
        f"{found.cached_share:.0%} of prompt tokens were cached"
    )


def _prefill(summary: Summary) -> Iterator[str]:
    said = [f"{percentile(summary.ttft.successes, 'p50')} ms (median TTFT)"]
    line = summary.prompt_line
    if line is not None and line.interval[0] > 0:
        low, high = line.interval
        said.append(
            f"+{number(line.ms_per_1k)} ms ({number(low)} to {number(high)}) per 1,000 computed prompt tokens, on "
            f"{number(line.base_ms)} ms"
        )
    if summary.prefill is not None:
        kinds = summary.prefill.num_kinds
        if kinds == 1:
            said.append(_model(summary.prefill.model, "ms"))
        else:
            said.append(
                f"around the means of {kinds} kinds: {_model(summary.prefill.model, 'times the mean')}"
            )
    if len(said) > 1:
        yield f"Prefill: {'; '.join(said)}"


def _decode(summary: Summary) -> Iterator[str]:
    found = summary.decode
    if found is None:
        return
    said = [f"{percentile(summary.itl, 'p50')} ms (median)", _model(found.model, "ms")]
    if found.tokens_per_arrival > 1.05:
        said.append(f"chunks of {found.tokens_per_arrival:.2g} tokens are one sample each")
    line = found.in_flight
    if line is not None and (line.interval[0] > 0 or line.interval[1] < 0):
        low, high = line.interval
        said.append(f"{line.slope:+.2g} ms ({low:.2g} to {high:.2g}) per further request in flight")
    yield f"Decode: {'; '.join(said)}"


def _model(model: IntervalModel, unit: str) -> str:
    best = f"best model {_family(model.fits[0], unit)}"
    match model.verdict:
        case "fits":
            return f"{best}, which fits"
        case "near":
            return f"{best}, nearly: no share is off by more than {model.distance:.1%}"
        case "refused":
            return f"{best}, which does not fit: shares are off by up to {model.distance:.0%}"


def _family(fit: Fit, unit: str) -> str:
    found = fit.parameters
    if fit.family == "two lognormals":
        parts: Sequence[str] = [
            f"{share:.0%} around {number(math.exp(found[mu]))} {unit}, σ {found[sigma]:.2g}"
            for share, mu, sigma in (
                (found["share"], "mu", "sigma"),
                (1 - found["share"], "mu_2", "sigma_2"),
            )
        ]
        return f"two lognormals ({'; '.join(parts)})"
    if fit.family == "lognormal":
        return f"lognormal (σ {found['sigma']:.2g})"
    return f"{fit.family} (shape {found['shape']:.2g})"
