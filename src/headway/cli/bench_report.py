"""What `headway bench` prints: a result as text for people and as JSON for scripts. It measures nothing."""

from collections.abc import Iterator, Mapping

from headway import __version__
from headway.cli import bench_ladder
from headway.cli import bench_server_report as server_report
from headway.cli.bench_sections import NOT_TOLD, concurrency, labels, sentences, turns, with_interval
from headway.cli.bench_streams import asked_json, refusals, streams
from headway.cli.table import aligned
from headway.cli.trace_report import read_lines, shared_times_line
from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import Distribution
from headway.lab.figure_text import mean_text, number
from headway.lab.measurement import LAG_LIMIT_NS, RunResult
from headway.lab.request_headers import shown
from headway.lab.slo import limits_ms
from headway.lab.summary import Summary
from headway.lab.summary import as_json as summary_json
from headway.lab.trace_facts import facts_json

_SHOWN = ("p50", "p95", "p99")


def as_json(result: RunResult) -> dict[str, object]:
    """Return the result as JSON's types: what was asked for, then what was found."""
    options = result.options
    return {
        "headway": __version__,
        "endpoint": f"{options.endpoint.authority}{options.endpoint.path}",
        "model": result.model,
        "workload": options.workload,
        "arrival": result.arrival,
        "headers": shown(options.endpoint.headers),
        "streams": asked_json(options),
        "seed": options.seed,
        "max_output_tokens": options.output_tokens,
        "slo": None if options.slo is None else limits_ms(options.slo),
        "interrupted": result.interrupted,
        "ended_early": result.ended_early,
        "believable": result.believable,
        "trace": _trace_json(result),
        **summary_json(result.summary),
        "ladder": None if result.ladder is None else bench_ladder.as_json(result.ladder),
        **server_report.as_json(result),
    }


def as_text(result: RunResult) -> str:
    """Return the result for a terminal."""
    return "\n".join(_lines(result))


def _lines(result: RunResult) -> Iterator[str]:
    options, summary = result.options, result.summary
    if result.simulation is not None:
        yield result.simulation
    if not result.believable:
        yield (
            "DO NOT BELIEVE THESE FIGURES: the client sent 1 of 100 requests "
            f"{result.lag_p99_ns / NS_PER_MS:,.0f} ms late or more, {LAG_LIMIT_NS // NS_PER_MS} are allowed. Offer less, or "
            "measure from a machine that is less busy."
        )
    if result.interrupted:
        yield "Interrupted: what was over by then."
    if result.ended_early is not None:
        yield f"Ended early: {result.ended_early}"
    if result.ladder is not None:
        yield from bench_ladder.as_lines(result.ladder)
        yield ""
        yield bench_ladder.introduction(result.ladder)
    yield _headline(result)
    yield (
        f"{options.workload}, {result.arrival}, {summary.num_offered:,} requests in {summary.duration_s:,.1f} s, "
        f"{summary.num_ok:,} answered"
    )
    for label, num_failed in summary.failures.items():
        yield f"  {num_failed} failed: {label}{refusals(summary, label)}"
    yield from _trace_lines(result)
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
    yield ""
    yield from _totals(summary)
    for section in (streams, turns, labels, concurrency, sentences):
        yield from section(summary)
    yield from server_report.lines(result)


def _headline(result: RunResult) -> str:
    summary = result.summary
    where = f"{result.model} at {result.options.endpoint.authority}"
    ttft, itl = summary.ttft.successes.percentiles["p50"], summary.itl.percentiles["p50"]
    if ttft is None:
        return f"No request was answered: {where}"
    then = "" if itl is None else f", then one every {number(itl)} ms"
    return f"First token after {number(ttft)} ms{then} (medians): {where}"


def _totals(summary: Summary) -> Iterator[str]:
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


def _trace_json(result: RunResult) -> dict[str, object] | None:
    if result.trace is None:
        return None
    replay, cell_ns = result.options.replay, result.options.replay.cell_ns(result.trace.format)
    changes = {"speed": replay.speed or 1.0, "spread_s": None if cell_ns is None else cell_ns / NS_PER_S}
    return {**facts_json(result.trace), **changes}


def _trace_lines(result: RunResult) -> Iterator[str]:
    facts, options = result.trace, result.options
    if facts is None:
        return
    yield from read_lines(facts)
    if facts.coarse and options.arrival is None and options.replay.spread_ns is None:
        yield f"  {shared_times_line(facts)} and came in bursts that never were: --spread-times spreads them"


def _table(figures: Mapping[str, Distribution]) -> Iterator[str]:
    rows = [("ms", *(f"{name} (95 % interval)" for name in _SHOWN), "mean ± deviation", "n")]
    rows += [
        (name, *(with_interval(found, shown) for shown in _SHOWN), mean_text(found, NOT_TOLD), f"{found.n:,}")
        for name, found in figures.items()
    ]
    yield from aligned(rows, "<>>>>>")
