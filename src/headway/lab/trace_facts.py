"""How well a trace could be read, for the report of a run that replays it. A client's process makes it, so it is light."""

from dataclasses import dataclass
from itertools import groupby

from headway.core.clock import NS_PER_S
from headway.lab.trace import BadRow, Trace, TraceFormat

COARSE_SHARE = 0.1
"""A trace of which so many requests share their time with another was written on a grid: traffic itself is not so even."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """How a trace was read. `bad_rows` are the first of `num_bad`; `num_out_of_order` stood behind a later one."""

    format: TraceFormat
    num_rows: int
    num_bad: int
    bad_rows: tuple[BadRow, ...]
    num_out_of_order: int
    tokens_inferred: bool
    """From bytes, as access logs count no tokens."""
    duration_ns: int
    """From the first arrival to the last, as recorded."""
    num_distinct_times: int
    num_sharing: int
    """Requests whose time is another's, too."""

    @property
    def coarse(self) -> bool:
        """Whether times lie on a grid so coarse that a replay sends bursts that never were."""
        return self.num_sharing >= COARSE_SHARE * self.num_rows


def trace_facts(trace: Trace) -> TraceFacts:
    """Return how a trace was read; of one whose times are as in the file."""
    counts = [sum(1 for _ in rows) for _, rows in groupby(trace.rows, key=lambda row: row.offset_ns)]
    return TraceFacts(
        format=trace.format,
        num_rows=len(trace.rows),
        num_bad=trace.num_bad,
        bad_rows=trace.bad_rows,
        num_out_of_order=trace.num_out_of_order,
        tokens_inferred=any(row.tokens_inferred for row in trace.rows),
        duration_ns=trace.duration_ns,
        num_distinct_times=len(counts),
        num_sharing=sum(count for count in counts if count > 1),
    )


def facts_json(facts: TraceFacts) -> dict[str, object]:
    """Return them as JSON's types."""
    return {
        "format": facts.format.value,
        "rows": facts.num_rows,
        "bad": facts.num_bad,
        "bad_rows": [{"line": bad.line, "reason": bad.reason} for bad in facts.bad_rows],
        "out_of_order": facts.num_out_of_order,
        "tokens_inferred": facts.tokens_inferred,
        "duration_s": facts.duration_ns / NS_PER_S,
        "distinct_times": facts.num_distinct_times,
    }
