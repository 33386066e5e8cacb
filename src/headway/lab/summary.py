"""What a run's records add up to: the figures that a person reads and scripts rely on. Pure functions over exchanges.

Durations are milliseconds here. Percentiles of every figure are told over the requests that succeeded, and again with
failures as infinity, so that a server that refuses its slowest requests is no faster for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.goodput import Goodput, failures, goodput, values
from headway.lab.latency import due_ns, e2e_ns, intervals, lag_ns, tpot_ns, ttft_from_dispatch_ns, ttft_ns
from headway.lab.rates import peak_rate
from headway.lab.slo import Slo
from headway.lab.tokens import TokenSource, token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One latency of a run, in milliseconds."""

    successes: Distribution
    all_requests: Distribution
    """Failures are infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run."""

    num_offered: int
    num_ok: int
    num_unsent_turns: int
    """Turns that would have followed one that failed: neither offered nor failed."""
    failures: Mapping[str, int]
    ttft: Figure
    """From the intended start."""
    ttft_from_dispatch: Figure
    tpot: Figure
    e2e: Figure
    itl: Distribution
    """Over tokens of requests that succeeded; its intervals draw whole requests."""
    lag: Distribution
    """How late the client sent, over all requests."""
    token_source: TokenSource | Literal["mixed"] | None
    """What tokens were counted by; None = no token came."""
    duration_s: float
    """From the first intended start to the last end."""
    request_rate: float | None
    """Requests offered per second, from the first intended start to the last; None with fewer than two."""
    output_tokens: int
    output_tok_s: float | None
    peak_tok_s: float | None
    goodput: Goodput | None
    """None = there is no SLO."""


def summarise(exchanges: Sequence[Exchange], *, slo: Slo | None = None, num_unsent_turns: int = 0) -> Summary:
    """Return the figures of a run's `exchanges`, in any order."""
    ok = [exchange for exchange in exchanges if exchange.ok]
    counts = [token_counts(exchange) for exchange in ok]
    sources = {count.source for count in counts}
    num_tokens = sum(count.total for count in counts)
    starts = [due_ns(exchange) for exchange in exchanges]
    ends = [exchange.stamps.ended_ns for exchange in exchanges]
    duration_ns = max(ends) - min(starts) if exchanges else 0
    spread_ns = max(starts) - min(starts) if exchanges else 0
    return Summary(
        num_offered=len(exchanges),
        num_ok=len(ok),
        num_unsent_turns=num_unsent_turns,
        failures=failures(exchanges),
        ttft=_figure(ttft_ns, exchanges),
        ttft_from_dispatch=_figure(ttft_from_dispatch_ns, exchanges),
        tpot=_figure(tpot_ns, exchanges),
        e2e=_figure(e2e_ns, exchanges),
        itl=_intervals(ok),
        lag=describe([lag_ns(exchange) / NS_PER_MS for exchange in exchanges]),
        token_source=sources.pop() if len(sources) == 1 else ("mixed" if sources else None),
        duration_s=duration_ns / NS_PER_S,
        request_rate=(len(exchanges) - 1) * NS_PER_S / spread_ns if spread_ns else None,
        output_tokens=num_tokens,
        output_tok_s=num_tokens * NS_PER_S / duration_ns if duration_ns else None,
        peak_tok_s=peak_rate(ok),
        goodput=None if slo is None else goodput(slo, exchanges),
    )


def as_json(summary: Summary) -> dict[str, object]:
    """Return the summary as JSON's types: null is what so few samples cannot tell, "inf" what failures made endless."""
    good = summary.goodput
    return {
        "offered": summary.num_offered,
        "ok": summary.num_ok,
        "unsent_turns": summary.num_unsent_turns,
        "errors": dict(summary.failures),
        "goodput": None if good is None else good.fraction,
        "ttft_ms": _figure_json(summary.ttft),
        "ttft_from_dispatch_ms": _figure_json(summary.ttft_from_dispatch),
        "itl_ms": distribution_json(summary.itl),
        "tpot_ms": _figure_json(summary.tpot),
        "e2e_ms": _figure_json(summary.e2e),
        "lag_ms": distribution_json(summary.lag),
        "tokens_by": summary.token_source,
        "duration_s": rounded(summary.duration_s),
        "rate": {
            "requests_s": rounded(summary.request_rate),
            "output_tok_s": rounded(summary.output_tok_s),
            "peak_tok_s": rounded(summary.peak_tok_s),
        },
        "output_tokens": summary.output_tokens,
    }


def distribution_json(found: Distribution) -> dict[str, object]:
    """Return a distribution as JSON's types."""
    return {
        **{name: rounded(value) for name, value in found.percentiles.items()},
        "mean": rounded(found.mean),
        "std": rounded(found.std),
        "n": found.n,
        "ci95": {
            name: None if interval is None else [rounded(end) for end in interval]
            for name, interval in found.intervals.items()
        },
    }


def _figure_json(figure: Figure) -> dict[str, object]:
    with_failures = {name: rounded(value) for name, value in figure.all_requests.percentiles.items()}
    return distribution_json(figure.successes) | {"with_failures": with_failures}


def rounded(value: float | None) -> float | str | None:
    """Return a figure as JSON's types, of six digits."""
    if value is None:
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else "inf"


def _figure(of: Callable[[Exchange], float | None], exchanges: Sequence[Exchange]) -> Figure:
    found = values(of, exchanges)
    return Figure(
        successes=describe(np.asarray(found.successes) / NS_PER_MS, found.success_conversations),
        all_requests=describe(np.asarray(found.all_requests) / NS_PER_MS, found.all_conversations),
    )


def _intervals(ok: Sequence[Exchange]) -> Distribution:
    each_ms: list[float] = []
    times: list[int] = []
    clusters: list[int] = []
    for number, exchange in enumerate(ok):
        for run in intervals(exchange).runs:
            each_ms.append(run.each_ns / NS_PER_MS)
            times.append(run.num_tokens)
            clusters.append(number)
    return describe(
        np.repeat(np.asarray(each_ms, dtype=np.float64), times),
        np.repeat(np.asarray(clusters, dtype=np.int64), times).tolist(),
    )
