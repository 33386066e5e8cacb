"""What a report says in words and tables: an answer that anybody understands, the figures, the failures, the terms."""

from collections.abc import Iterator

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.core.version import __version__
from headway.lab.figure_text import NOT_TOLD, mean_text, number, percentile_text
from headway.lab.measurement import LAG_LIMIT_NS, RunResult
from headway.lab.plot_data import reported
from headway.lab.report_section import Row, Section, Table
from headway.lab.slo import Slo, limits_ms
from headway.lab.workload_spec import (
    Context,
    Light,
    Medium,
    Mixed,
    MultiTurn,
    SharedPrefix,
    TraceFile,
    parse_workload,
)

MOST_MESSAGE = 300
"""Characters of an error message."""
_SHOWN = ("p50", "p95", "p99")
_TERMS: tuple[Row, ...] = (
    ("TTFT", "time to first token: from when a request was due to the first text, reasoning included"),
    ("TTFT from dispatch", "the same from when it was sent: without the client's own lateness"),
    ("ITL", "inter-token latency: the time between two tokens, for each token after the first"),
    ("TPOT", "time per output token: first to last text ÷ (tokens − 1), one value a request"),
    ("E2E", "end to end: from when a request was due to its last text"),
    ("client's lag", "how late the measuring program sent; what it measures is wrong if that is much"),
    ("p50, p95, p99", "half, 95 % and 99 % of the values are no larger; p99 is told from 100 values on"),
    ("interval", "made so that in 19 of 20 such runs it holds the figure that an endless run would show"),
    ("goodput", "requests that met every limit ÷ requests offered; a failure meets none"),
)


def overview_section(result: RunResult) -> Section:
    """Return the answer in plain words: what was measured, how long users waited, what failed, whether to believe it."""
    return Section(
        heading=f"How long users wait for {result.model}",
        warnings=tuple(_warnings(result)),
        text=tuple(_answer(result)),
    )


def figures_section(result: RunResult) -> Section:
    """Return the figures, in milliseconds, with their intervals."""
    summary = result.summary
    figures = [
        ("TTFT", summary.ttft.successes),
        ("TTFT from dispatch", summary.ttft_from_dispatch.successes),
        ("ITL", summary.itl),
        ("TPOT", summary.tpot.successes),
        ("E2E", summary.e2e.successes),
        ("client's lag", summary.lag),
    ]
    if summary.failures:
        figures.insert(1, ("TTFT, a failure as endless", summary.ttft.all_requests))
    rows = tuple(
        (name, *(percentile_text(found, shown) for shown in _SHOWN), mean_text(found), f"{found.n:,}")
        for name, found in figures
    )
    head = ("milliseconds", *(f"{name} (95 % interval)" for name in _SHOWN), "mean ± deviation", "values")
    return Section(
        heading="Figures", text=(*_throughput(result), *_warm_up(result)), table=Table(head=head, rows=rows)
    )


def failures_section(result: RunResult) -> Section | None:
    """Return what failed, by kind, with the first message of each; None if nothing did."""
    first: dict[str, str] = {}
    for exchange in reported(result):
        failure = exchange.answer.failure
        if failure is not None:
            first.setdefault(failure.label, failure.message)
    if not first:
        return None
    rows = tuple(
        (label, f"{count:,}", _shortened(first.get(label, "")))
        for label, count in result.summary.failures.items()
    )
    unsent = result.summary.num_unsent_turns
    told = f"{unsent:,} turns were not sent, since the turn before failed." if unsent else ""
    return Section(
        heading="Failures",
        text=(told,) if told else (),
        table=Table(head=("kind", "requests", "what the first said"), rows=rows),
    )


def terms_section(_: RunResult) -> Section:
    """Return what the figures mean."""
    return Section(
        heading="What the figures mean",
        text=("In one line each; in full, and how other tools differ, in Headway's docs/lab.md.",),
        table=Table(head=("figure", "meaning"), rows=_TERMS),
    )


def run_section(result: RunResult) -> Section:
    """Return what was asked for, so that it can be asked for again."""
    options = result.options
    rows = (
        ("endpoint", f"{options.endpoint.authority}{options.endpoint.path}"),
        ("model", result.model),
        ("workload", options.workload),
        ("arrival", result.arrival),
        ("requests", _or_none(options.num_requests)),
        ("duration, s", _or_none(None if options.duration_ns is None else options.duration_ns / NS_PER_S)),
        ("limits, ms", _or_none(None if options.slo is None else _limits(options.slo))),
        ("seed", str(options.seed)),
        ("tokens of an answer, at most", f"{options.output_tokens:,}"),
        ("started", f"{result.started_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("Headway", __version__),
    )
    return Section(heading="The run", table=Table(head=("", "as asked for"), rows=rows))


def _warnings(result: RunResult) -> Iterator[str]:
    if result.simulation is not None:
        yield result.simulation
    if not result.believable:
        yield (
            f"Do not believe these figures: the measuring program itself sent 1 of 100 requests {number(_lag_ms(result))} "
            f"ms late or more; {LAG_LIMIT_NS // NS_PER_MS} ms are allowed. Offer less, or measure from a less busy machine."
        )
    if result.ended_early is not None:
        yield f"The run ended early: {result.ended_early}"
    if result.interrupted:
        yield "The run was interrupted: this is what was over by then."


def _answer(result: RunResult) -> Iterator[str]:
    summary = result.summary
    if result.ladder is not None:
        yield result.ladder.sentence()
    yield (
        f"{summary.num_offered:,} requests in {_seconds(summary.duration_s)} were sent to "
        f"{result.options.endpoint.authority}: {_what(result)}, {_when(result)}."
    )
    if summary.num_offered:
        yield " ".join(_findings(result))
    if summary.num_ok and result.believable and result.simulation is None:
        yield (
            f"The measuring program kept up: it sent 99 of 100 requests no later than {number(_lag_ms(result))} ms after "
            "they were due."
        )


def _findings(result: RunResult) -> Iterator[str]:
    summary = result.summary
    num_failed = summary.num_offered - summary.num_ok
    half, most = (summary.ttft.successes.percentiles[name] for name in ("p50", "p95"))
    if half is not None and most is not None:
        who = "Of the users who were answered, half" if num_failed else "Half of the users"
        yield f"{who} saw their answer begin within {_seconds(half / 1e3)}, 95 % within {_seconds(most / 1e3)}."
    itl_ms = summary.itl.percentiles["p50"]
    if itl_ms:
        what = "pieces" if summary.token_source == "chunks" else "tokens (words, or parts of words)"
        yield f"From then on text usually came at {number(1e3 / itl_ms)} {what} a second."
    if num_failed:
        kinds = ", ".join(f"{count:,} {label}" for label, count in summary.failures.items())
        yield f"{num_failed:,} of {summary.num_offered:,} requests failed ({kinds})."
    else:
        yield "No request failed."
    if summary.goodput is not None and summary.goodput.fraction is not None:
        yield f"{summary.goodput.fraction:.1%} of all requests met the limits that were set."


def _what(result: RunResult) -> str:
    try:
        workload = parse_workload(result.options.workload, result.options.lines)
    except ConfigError:
        return result.options.workload
    match workload:
        case Light():
            return "short questions"
        case Medium(lines=lines):
            return f"questions about {lines:,} lines of code each"
        case MultiTurn(turns=turns):
            return f"conversations of {turns} turns about code"
        case SharedPrefix():
            return "questions about code that many of them share"
        case Context():
            return "prompts of given lengths"
        case Mixed():
            return "prompts of several kinds"
        case TraceFile():
            return "as a file recorded them"


def _when(result: RunResult) -> str:
    if result.options.streams:
        return "at once, each at times of its own"
    form, _, users = result.arrival.partition(":")
    if form == "closed":
        return f"by {users} users at a time" if users != "1" else "one after another"
    if result.ladder is not None and result.ladder.reported:
        return f"at {number(result.ladder.reported[0].measured.rate)} a second"
    rate = result.summary.request_rate
    return "at times fixed beforehand" + ("" if rate is None else f", {number(rate)} a second on average")


def _throughput(result: RunResult) -> Iterator[str]:
    summary = result.summary
    rate = (
        ""
        if summary.output_tok_s is None
        else f", {number(summary.output_tok_s)} a second over the whole run"
    )
    peak = "" if summary.peak_tok_s is None else f", {number(summary.peak_tok_s)} in the busiest second"
    by = {
        "usage": "as the server counts them",
        "tokenizer": "counted by the model's tokenizer",
        "chunks": "one for each chunk, as the server does not count them",
        "mixed": "counted in several ways",
    }
    if summary.token_source is not None:
        yield f"{summary.output_tokens:,} tokens were written{rate}{peak}; tokens are {by[summary.token_source]}."


def _warm_up(result: RunResult) -> Iterator[str]:
    warm_up = result.summary.warm_up
    if warm_up.num_excluded:
        yield (
            f"The first {warm_up.num_excluded:,} requests were left out of all latencies as warm-up: they differ from the "
            "rest by more than chance."
        )
    if warm_up.steady is False:
        yield "Latencies were still moving at the end: the run never became steady."


def _limits(slo: Slo) -> str:
    return ", ".join(f"{name} {limit:,.10g}" for name, limit in limits_ms(slo).items())


def _or_none(asked: float | str | None) -> str:
    return NOT_TOLD if asked is None else f"{asked:,.10g}" if isinstance(asked, float | int) else asked


def _seconds(duration_s: float) -> str:
    told = f"{duration_s:,.0f}" if duration_s >= 10 else f"{duration_s:.2g}"
    return f"{told} second" if told == "1" else f"{told} seconds"


def _lag_ms(result: RunResult) -> float:
    return result.lag_p99_ns / NS_PER_MS


def _shortened(message: str) -> str:
    return message if len(message) <= MOST_MESSAGE else f"{message[:MOST_MESSAGE]}…"
