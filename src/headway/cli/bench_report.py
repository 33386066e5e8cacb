"""What `headway bench` prints: a result as text for people and as JSON for scripts. It measures nothing."""

from collections.abc import Iterator, Mapping

from headway import __version__
from headway.cli.table import aligned
from headway.core.clock import NS_PER_MS
from headway.lab.breakdown import Part
from headway.lab.distribution import Distribution
from headway.lab.measurement import LAG_LIMIT_NS, RunResult
from headway.lab.summary import Summary
from headway.lab.summary import as_json as summary_json

_SHOWN = ("p50", "p95", "p99")
_NAMED_TURN = 5
"""Latency grows with every turn: by the fifth a conversation is what a conversation is."""
_MOST_PARTS = 8
"""Rows of a table beside the main one: what is printed should fit a screen."""


def as_json(result: RunResult) -> dict[str, object]:
    """Return the result as JSON's types: what was asked for, then what was found."""
    options = result.options
    return {
        "headway": __version__,
        "endpoint": f"{options.endpoint.authority}{options.endpoint.path}",
        "model": result.model,
        "workload": options.workload,
        "arrival": result.arrival,
        "seed": options.seed,
        "max_output_tokens": options.output_tokens,
        "interrupted": result.interrupted,
        "believable": result.believable,
        **summary_json(result.summary),
    }


def as_text(result: RunResult) -> str:
    """Return the result for a terminal."""
    return "\n".join(_lines(result))


def _lines(result: RunResult) -> Iterator[str]:
    options, summary = result.options, result.summary
    if not result.believable:
        yield (
            "DO NOT BELIEVE THESE FIGURES: the client sent 1 of 100 requests "
            f"{result.lag_p99_ns / NS_PER_MS:,.0f} ms late or more, {LAG_LIMIT_NS // NS_PER_MS} are allowed. Offer less, or "
            "measure from a machine that is less busy."
        )
    if result.interrupted:
        yield "Interrupted: what was over by then."
    yield (
        f"{result.model} at {options.endpoint.authority}: {options.workload}, {result.arrival}, "
        f"{summary.num_offered} requests in {summary.duration_s:,.1f} s, {summary.num_ok} answered"
    )
    for label, number in summary.failures.items():
        yield f"  {number} failed: {label}"
    if summary.num_unsent_turns:
        yield f"  {summary.num_unsent_turns} turns were not sent, as the turn before failed"
    if summary.warm_up.num_excluded:
        yield f"  the first {summary.warm_up.num_excluded} requests were left out of latencies as warm-up"
    elif summary.warm_up.steady is False:
        yield "  it never became steady: latency was still changing in its middle; nothing was left out as warm-up"
    yield ""
    figures = {
        "TTFT": summary.ttft.successes,
        "ITL": summary.itl,
        "TPOT": summary.tpot.successes,
        "E2E": summary.e2e.successes,
        "client's lag": summary.lag,
    }
    yield from _table(figures)
    yield from _turns(summary)
    yield from _labels(summary)
    yield from _cache(summary)
    yield ""
    rate = "" if summary.output_tok_s is None else f", {summary.output_tok_s:,.1f} tokens/s"
    by = {"usage": "as the server counts them", "tokenizer": "by tokenizer", "chunks": "one for each chunk"}
    how = (
        f" (tokens {by.get(summary.token_source, 'counted in several ways')})" if summary.token_source else ""
    )
    yield f"{summary.output_tokens:,} output tokens{rate}{how}"
    if summary.goodput is not None and summary.goodput.fraction is not None:
        yield (
            f"goodput {summary.goodput.fraction:.1%}: {summary.goodput.num_met} of {summary.goodput.num_offered} offered "
            "requests met the SLO"
        )


def _turns(summary: Summary) -> Iterator[str]:
    if not summary.by_turn:
        return
    yield ""
    yield from _parts("turn", {str(turn): found for turn, found in summary.by_turn.items()})
    fifth = summary.by_turn.get(_NAMED_TURN)
    if fifth is not None and fifth.num_ok:
        first = summary.by_turn[min(summary.by_turn)].ttft.successes.percentiles["p50"]
        beside = "" if first is None else f"; of the first {_ms(first)}"
        yield f"TTFT of the fifth turn: {_with_interval(fifth.ttft.successes, 'p50')} ms{beside}"


def _labels(summary: Summary) -> Iterator[str]:
    if summary.by_label:
        yield ""
        yield from _parts("part", summary.by_label)


def _parts(what: str, parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield a row for each of the first parts: L11's and multi-turn's tables."""
    rows = [
        (what, "TTFT p50 (95 % interval), ms", "p95", "TPOT p50", "E2E p50", "prompt tokens", "cached", "n")
    ]
    for name, found in list(parts.items())[:_MOST_PARTS]:
        ttft, cached = found.ttft.successes, found.cached_share
        rows.append(
            (
                name,
                _with_interval(ttft, "p50"),
                _percentile(ttft, "p95"),
                _percentile(found.tpot.successes, "p50"),
                _percentile(found.e2e.successes, "p50"),
                _percentile(found.prompt_tokens, "p50"),
                "-" if cached is None else f"{cached:.0%}",
                f"{found.num_ok:,}",
            )
        )
    yield from aligned(rows, "<>>>>>>>")
    if len(parts) > _MOST_PARTS:
        yield f"and {len(parts) - _MOST_PARTS} more, which --json shows"


def _cache(summary: Summary) -> Iterator[str]:
    found = summary.by_cache
    if found is None or not (found.cached.n and found.cached_share):
        return
    cold = f"{_with_interval(found.cold, 'p50')} ms cold ({found.cold.n:,})" if found.cold.n else "none cold"
    yield ""
    yield (
        f"TTFT p50: {cold}, {_with_interval(found.cached, 'p50')} ms with cached tokens ({found.cached.n:,}); "
        f"{found.cached_share:.0%} of all prompt tokens came from the cache"
    )


def _table(figures: Mapping[str, Distribution]) -> Iterator[str]:
    rows = [("ms", *(f"{name} (95 % interval)" for name in _SHOWN), "mean ± deviation", "n")]
    rows += [
        (name, *(_with_interval(found, shown) for shown in _SHOWN), _mean(found), f"{found.n:,}")
        for name, found in figures.items()
    ]
    yield from aligned(rows, "<>>>>>")


def _percentile(found: Distribution, name: str) -> str:
    value = found.percentiles[name]
    return "-" if value is None else _ms(value)


def _with_interval(found: Distribution, name: str) -> str:
    value, interval = found.percentiles[name], found.intervals[name]
    if value is None:
        return "-"
    return _ms(value) if interval is None else f"{_ms(value)} ({_ms(interval[0])} to {_ms(interval[1])})"


def _mean(found: Distribution) -> str:
    if found.mean is None:
        return "-"
    return _ms(found.mean) + ("" if found.std is None else f" ± {_ms(found.std)}")


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
