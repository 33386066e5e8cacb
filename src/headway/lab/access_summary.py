"""What an access log says of its traffic: which routes, how much of it each, how slow, when, and from whom.

It knows nothing of how logs are written.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from headway.core.clock import NS_PER_MS
from headway.lab.trace import HttpFacts, Trace, TraceRow


@dataclass(frozen=True, slots=True)
class RouteSummary:
    """One method and path; `weight` is its share of all, `p95_ms` is over the `num_timed` that succeeded and were timed."""

    method: str
    path: str
    num_requests: int
    weight: float
    num_failed: int
    num_timed: int
    p95_ms: float | None


@dataclass(frozen=True, slots=True)
class AccessSummary:
    """Routes by falling weight, arrivals by hour of the day (24, the log's own zone), and shares of features, largest first.

    A client is its user agent up to the first slash or space; a referer, its host.
    """

    routes: tuple[RouteSummary, ...]
    arrivals_by_hour: tuple[int, ...]
    methods: tuple[tuple[str, float], ...]
    clients: tuple[tuple[str, float], ...]
    referers: tuple[tuple[str, float], ...]
    protocols: tuple[tuple[str, float], ...]


def summarise_access(trace: Trace) -> AccessSummary:
    """Return the summary of a trace that was read from an access log; of any other, an empty one."""
    rows = [(row, row.http) for row in trace.rows if row.http is not None]
    by_route: dict[tuple[str, str], list[TraceRow]] = {}
    for row, http in rows:
        by_route.setdefault((http.method, http.path), []).append(row)
    ordered = sorted(by_route.items(), key=lambda item: (-len(item[1]), item[0]))
    hours = Counter(http.hour for _, http in rows)

    def shares(feature: Callable[[HttpFacts], str]) -> tuple[tuple[str, float], ...]:
        counts = Counter(feature(http) for _, http in rows)
        return tuple(
            (name, count / len(rows))
            for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )

    return AccessSummary(
        routes=tuple(
            _route(method, path, members, len(members) / len(rows)) for (method, path), members in ordered
        ),
        arrivals_by_hour=tuple(hours[hour] for hour in range(24)),
        methods=shares(lambda http: http.method),
        clients=shares(lambda http: http.user_agent.split("/", 1)[0].split(" ", 1)[0]),
        referers=shares(lambda http: http.referer.split("://", 1)[-1].split("/", 1)[0]),
        protocols=shares(lambda http: http.protocol),
    )


def _route(method: str, path: str, rows: list[TraceRow], weight: float) -> RouteSummary:
    timed = sorted(row.served_ns for row in rows if row.served_ns is not None and not row.failed)
    return RouteSummary(
        method=method,
        path=path,
        num_requests=len(rows),
        weight=weight,
        num_failed=sum(row.failed for row in rows),
        num_timed=len(timed),
        # The nearest rank: a latency that was seen, never one between two.
        p95_ms=timed[ceil(0.95 * len(timed)) - 1] / NS_PER_MS if timed else None,
    )
