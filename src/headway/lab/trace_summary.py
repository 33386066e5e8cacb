"""What a trace says before anything of it is sent: when its requests came, how large they were, what their prompts share.

Of the requests' routes and senders, which access logs alone tell, `lab/access_summary.py` says more.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from headway.core.clock import NS_PER_S
from headway.lab.distribution import Distribution, describe
from headway.lab.trace import UNIX_EPOCH, Trace, TraceRow
from headway.lab.trace_mooncake import BLOCK_TOKENS

_NS_PER_HOUR = 3600 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A trace's traffic. Offsets are nanoseconds from its first request."""

    started_at: datetime | None
    """UTC; None where the file's times have no date."""
    mean_rate: float | None
    """Requests per second from the first to the last; None where all came at one time."""
    peak_second: int
    """The most requests that came within a second, wherever it begins,"""
    peak_offset_ns: int
    """and the first of them."""
    gap_cv: float | None
    """Coefficient of variation of the gaps between requests: 1 for Poisson, more for bursts; None below two gaps."""
    by_hour: tuple[int, ...] | None
    """Requests by hour of the day, 24: an access log's own zone, else UTC; None where there is no date."""
    input_tokens: Distribution
    """Of the rows that tell them."""
    output_tokens: Distribution
    """Of the rows that did not fail."""
    shared_prefix: float | None
    """Share of prompt tokens whose block an earlier request had; None where blocks are not told."""
    num_failed: int
    num_sessions: int


def summarise_trace(trace: Trace) -> TraceSummary:
    """Return what a trace's traffic was like."""
    offsets_ns = _offsets(trace)
    gaps_ns = np.diff(offsets_ns).astype(np.float64)
    within = np.searchsorted(offsets_ns, offsets_ns + NS_PER_S) - np.arange(len(offsets_ns))
    busiest = int(np.argmax(within))
    varies = len(gaps_ns) > 1 and trace.duration_ns > 0
    return TraceSummary(
        started_at=None if trace.unix_start_ns is None else _utc(trace.unix_start_ns),
        mean_rate=len(gaps_ns) * NS_PER_S / trace.duration_ns if trace.duration_ns else None,
        peak_second=int(within[busiest]),
        peak_offset_ns=int(offsets_ns[busiest]),
        gap_cv=float(gaps_ns.std(ddof=1) / gaps_ns.mean()) if varies else None,
        by_hour=_by_hour(trace, offsets_ns),
        input_tokens=describe([row.input_tokens for row in trace.rows if row.input_tokens is not None]),
        output_tokens=describe(
            [row.output_tokens for row in trace.rows if row.output_tokens is not None and not row.failed]
        ),
        shared_prefix=_shared_prefix(trace.rows),
        num_failed=sum(row.failed for row in trace.rows),
        num_sessions=len({row.session for row in trace.rows if row.session is not None}),
    )


def _offsets(trace: Trace) -> NDArray[np.int64]:
    return np.fromiter((row.offset_ns for row in trace.rows), np.int64, len(trace.rows))


def _utc(unix_ns: int) -> datetime:
    return (UNIX_EPOCH + timedelta(microseconds=unix_ns // 1000)).astimezone(UTC)


def _by_hour(trace: Trace, offsets_ns: NDArray[np.int64]) -> tuple[int, ...] | None:
    if trace.unix_start_ns is None:
        return None
    local = [row.http.hour for row in trace.rows if row.http is not None]
    hours = local or (trace.unix_start_ns + offsets_ns) // _NS_PER_HOUR % 24
    return tuple(int(count) for count in np.bincount(hours, minlength=24))


def _shared_prefix(rows: tuple[TraceRow, ...]) -> float | None:
    """An identifier stands for its block and all before it, so a block that was seen is a prefix that was."""
    seen: set[int] = set()
    num_tokens = num_shared = 0
    for row in rows:
        if not row.hash_ids or row.input_tokens is None:
            continue
        num_tokens += row.input_tokens
        *whole, last = (block in seen for block in row.hash_ids)
        num_shared += BLOCK_TOKENS * sum(whole)
        num_shared += (row.input_tokens - BLOCK_TOKENS * len(whole)) * last
        seen.update(row.hash_ids)
    return num_shared / num_tokens if num_tokens else None
