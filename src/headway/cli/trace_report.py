"""What `headway bench trace` prints: a trace's description as text for people and as JSON for scripts. It reads no file."""

import math
from collections.abc import Iterator, Sequence

from headway import __version__
from headway.cli.table import aligned
from headway.core.clock import NS_PER_S
from headway.lab.access_summary import AccessSummary
from headway.lab.distribution import Distribution
from headway.lab.figures import rounded
from headway.lab.trace_facts import TraceFacts, facts_json
from headway.lab.trace_summary import TraceSummary
from headway.models.summary import printable

_SHOWN = ("p50", "p95", "p99")
_NAMED_BAD_ROWS = 5
_ROUTES = 15
_FEATURES = 5
_BARS = "▁▂▃▄▅▆▇█"


def as_json(
    file: str, facts: TraceFacts, found: TraceSummary, access: AccessSummary | None
) -> dict[str, object]:
    """Return the description as JSON's types."""
    return {
        "headway": __version__,
        "file": file,
        **facts_json(facts),
        "starts_at": None if found.started_at is None else found.started_at.isoformat(),
        "arrivals": {
            "mean_rate_s": rounded(found.mean_rate),
            "peak_second": {
                "requests": found.peak_second,
                "at_s": found.peak_offset_ns / NS_PER_S,
            },
            "gap_cv": rounded(found.gap_cv),
            "by_hour": None if found.by_hour is None else list(found.by_hour),
        },
        "input_tokens": _tokens_json(found.input_tokens),
        "output_tokens": _tokens_json(found.output_tokens),
        "shared_prefix": rounded(found.shared_prefix),
        "failed": found.num_failed,
        "sessions": found.num_sessions,
        "access": None if access is None else _access_json(access),
    }


def as_text(file: str, facts: TraceFacts, found: TraceSummary, access: AccessSummary | None) -> str:
    """Return the description for a terminal."""
    return "\n".join(_lines(file, facts, found, access))


def read_lines(facts: TraceFacts) -> Iterator[str]:
    """Yield what reading a trace left to be said: rows that were bad, and tokens that nobody counted."""
    if facts.num_bad:
        yield f"  rows that cannot be read: {facts.num_bad:,}"
        for bad in facts.bad_rows[:_NAMED_BAD_ROWS]:
            yield f"    line {bad.line}: {printable(bad.reason)}"
        if facts.num_bad > _NAMED_BAD_ROWS:
            yield "    …"
    if facts.num_out_of_order:
        yield f"  rows that stood behind a later one and were sorted in: {facts.num_out_of_order:,}"
    if facts.tokens_inferred:
        yield "  tokens are inferred from bytes: an access log counts none"


def shared_times_line(facts: TraceFacts) -> str:
    """Return how coarse the trace's times are."""
    return (
        f"{facts.num_sharing:,} of {facts.num_rows:,} requests share their time with another ({facts.num_distinct_times:,} "
        "times)"
    )


def _lines(file: str, facts: TraceFacts, found: TraceSummary, access: AccessSummary | None) -> Iterator[str]:
    dated = "" if found.started_at is None else f" from {found.started_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{printable(file)}: {facts.format}, {facts.num_rows:,} requests in {_span(facts.duration_ns)}{dated}"
    yield from read_lines(facts)
    if found.num_failed:
        yield f"  requests that failed when they were recorded: {found.num_failed:,}"
    if found.num_sessions:
        yield f"  sessions: {found.num_sessions:,}"
    yield ""
    yield from _arrival_lines(facts, found, access)
    yield ""
    yield from _token_lines(facts, found)
    if access is not None:
        yield ""
        yield from _route_lines(access)
        for name, shares in _features(access).items():
            yield _feature_line(name, shares)


def _arrival_lines(facts: TraceFacts, found: TraceSummary, access: AccessSummary | None) -> Iterator[str]:
    if found.mean_rate is None:
        yield "all requests came at one time"
        return
    peak = f"at most {found.peak_second:,} within a second (after {_span(found.peak_offset_ns)})"
    rate = (found.mean_rate, "a second") if found.mean_rate >= 0.1 else (found.mean_rate * 3600, "an hour")
    yield f"arrivals  {rate[0]:,.3g} {rate[1]} on average, {peak}"
    if found.gap_cv is not None:
        yield f"          the gaps' coefficient of variation is {found.gap_cv:.3g} (Poisson has 1, bursts more)"
    if facts.coarse:
        yield f"          {shared_times_line(facts)}: a replay needs --spread-times"
    if found.by_hour is not None:
        most = max(found.by_hour)
        bars = "".join(_BARS[math.ceil(count * (len(_BARS) - 1) / most)] for count in found.by_hour)
        zone = "UTC" if access is None else "the log's zone"
        yield f"by hour   {bars}  0 to 23 h, {zone}; most at {found.by_hour.index(most)} h: {most:,}"


def _token_lines(facts: TraceFacts, found: TraceSummary) -> Iterator[str]:
    told = {"input": found.input_tokens, "output": found.output_tokens}
    heading = "tokens (inferred)" if facts.tokens_inferred else "tokens"
    rows: list[tuple[str, ...]] = [(heading, *_SHOWN, "mean", "n")]
    for name, each in told.items():
        shown = [each.percentiles[percentile] for percentile in _SHOWN]
        rows.append((name, *map(_count, [*shown, each.mean]), f"{each.n:,}"))
    yield from aligned(rows, "<>>>>>")
    if found.shared_prefix is not None:
        yield f"{found.shared_prefix:.1%} of the prompts' tokens lie in blocks that an earlier request had"


def _route_lines(access: AccessSummary) -> Iterator[str]:
    rows = [("route", "share", "requests", "failed", "P95 ms")]
    rows += [
        (
            printable(f"{route.method} {route.path}"),
            f"{route.weight:.1%}",
            f"{route.num_requests:,}",
            f"{route.num_failed:,}",
            "-" if route.p95_ms is None else f"{route.p95_ms:,.0f}",
        )
        for route in access.routes[:_ROUTES]
    ]
    yield from aligned(rows, "<>>>>")
    if len(access.routes) > _ROUTES:
        yield f"… and {len(access.routes) - _ROUTES:,} routes more"


def _feature_line(name: str, shares: Sequence[tuple[str, float]]) -> str:
    named = ", ".join(f"{printable(value) or 'none'} {share:.1%}" for value, share in shares[:_FEATURES])
    more = len(shares) - _FEATURES
    return f"{name:<9} {named}" + (f", {more:,} more" if more > 0 else "")


def _features(access: AccessSummary) -> dict[str, tuple[tuple[str, float], ...]]:
    return {
        "methods": access.methods,
        "clients": access.clients,
        "referers": access.referers,
        "protocols": access.protocols,
    }


def _access_json(access: AccessSummary) -> dict[str, object]:
    routes = [
        {
            "method": route.method,
            "path": route.path,
            "requests": route.num_requests,
            "weight": rounded(route.weight),
            "failed": route.num_failed,
            "timed": route.num_timed,
            "p95_ms": rounded(route.p95_ms),
        }
        for route in access.routes
    ]
    shares = {
        name: {value: rounded(share) for value, share in each} for name, each in _features(access).items()
    }
    return {"routes": routes, **shares}


def _tokens_json(found: Distribution) -> dict[str, object]:
    """Without intervals: the trace is all there is, no sample of anything."""
    told = {**found.percentiles, "mean": found.mean, "std": found.std}
    return {**{name: rounded(value) for name, value in told.items()}, "n": found.n}


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _span(duration_ns: int) -> str:
    """Two units at most: 9.05 s, 3 min 20 s, 118 d 4 h."""
    seconds = duration_ns / NS_PER_S
    if seconds < 60:
        return f"{seconds:.3g} s"
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit} {seconds % length // part:.0f} {smaller}"
    raise AssertionError("a minute has sixty seconds")
