"""A trace: which requests arrived when, and how large they were, in one form whatever file it came from.

Times are offsets from the first request. Rows are sorted by time, those of one time in the order of the file: access logs
are written when a request ends, so their order is not that of arrivals. Nothing here knows a file format.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from math import isfinite
from random import Random

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError

MAX_NAMED_BAD_ROWS = 20
"""Bad rows are all counted and the first so many named: a report must stay readable when a file is wholly bad."""

MAX_TOKENS = 2**31 - 1

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceFormat(StrEnum):
    """Whose form a file has."""

    MOONCAKE = "mooncake"
    AZURE = "azure"
    BURSTGPT = "burstgpt"
    ACCESS_LOG = "access-log"


GRID_NS = {
    TraceFormat.MOONCAKE: 3 * NS_PER_S,
    TraceFormat.AZURE: 100,
    TraceFormat.BURSTGPT: NS_PER_S,
    TraceFormat.ACCESS_LOG: NS_PER_S,
}
"""How coarse each format's times are: Mooncake's conversations have 1,180 distinct times in an hour, all 3 s apart."""


_DATED = (TraceFormat.AZURE, TraceFormat.ACCESS_LOG)


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """What an access log says of a request besides its time and size; `hour` is 0 to 23 in the log's own zone."""

    method: str
    path: str
    protocol: str
    status: int
    sent_bytes: int
    received_bytes: int | None
    user_agent: str
    referer: str
    hour: int


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace.

    `line` is its line in the file, from 1. `offset_ns` counts from the trace's first request. A number of tokens is None
    where the file does not tell it, and `tokens_inferred` where it was guessed from bytes. `hash_ids` names the prompt's
    blocks of 512 tokens: equal identifiers are equal text. `served_ns` is how long the traced server took; `failed`, that
    it did not answer.
    """

    line: int
    offset_ns: int
    input_tokens: int | None
    output_tokens: int | None
    tokens_inferred: bool = False
    failed: bool = False
    served_ns: int | None = None
    label: str = ""
    session: str | None = None
    hash_ids: tuple[int, ...] = ()
    http: HttpFacts | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no request, and why."""

    line: int
    reason: str


class BadRowError(ValueError):
    """Raised by a format's parser for a line that is no request; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a file, by time, and what could not be read.

    `bad_rows` names the first MAX_NAMED_BAD_ROWS of `num_bad`; `num_out_of_order` rows stood in the file after a later one.
    """

    format: TraceFormat
    rows: tuple[TraceRow, ...]
    num_bad: int
    bad_rows: tuple[BadRow, ...]
    num_out_of_order: int
    unix_start_ns: int | None = None
    """The first arrival in ns since 1970, where the file's times have a date."""

    @property
    def duration_ns(self) -> int:
        """From the first arrival to the last."""
        return self.rows[-1].offset_ns


def unix_ns(time: datetime) -> int:
    """Return a time of whole seconds in ns since 1970."""
    return (time - UNIX_EPOCH) // timedelta(seconds=1) * NS_PER_S


def seconds_ns(text: str) -> int:
    """Return seconds, written with any number of digits, in ns: a double of seconds since 1970 could not hold them."""
    return int(Decimal(text) * NS_PER_S)


def build_trace(trace_format: TraceFormat, read: Iterable[TraceRow | BadRow]) -> Trace:
    """Sort rows whose `offset_ns` is still a time from any origin, and count from the first.

    Raises ConfigError when no row is good.
    """
    rows: list[TraceRow] = []
    bad_rows: list[BadRow] = []
    num_bad = 0
    num_out_of_order = 0
    latest_ns: int | None = None
    for row in read:
        if isinstance(row, BadRow):
            num_bad += 1
            if len(bad_rows) < MAX_NAMED_BAD_ROWS:
                bad_rows.append(row)
            continue
        if latest_ns is not None and row.offset_ns < latest_ns:
            num_out_of_order += 1
        else:
            latest_ns = row.offset_ns
        rows.append(row)
    if not rows and bad_rows:
        first = bad_rows[0]
        raise ConfigError(
            f"None of the trace's {num_bad} rows can be read; line {first.line}, the first, because {first.reason}."
        )
    if not rows:
        raise ConfigError("The trace has no rows.")
    rows.sort(key=lambda row: row.offset_ns)
    start_ns = rows[0].offset_ns
    return Trace(
        trace_format,
        tuple(_moved(row, row.offset_ns - start_ns) for row in rows),
        num_bad,
        tuple(bad_rows),
        num_out_of_order,
        start_ns if trace_format in _DATED else None,
    )


def at_speed(trace: Trace, speed: float) -> Trace:
    """Return the trace replayed `speed` times as fast, each offset rounded to a nanosecond.

    Raises ConfigError unless `speed` is a finite number over 0.
    """
    if not (isfinite(speed) and speed > 0):
        raise ConfigError(f"A trace's speed must be a number over 0, not {speed}.")
    return replace(trace, rows=tuple(_moved(row, round(row.offset_ns / speed)) for row in trace.rows))


def dequantise(trace: Trace, seed: int, grid_ns: int | None = None) -> Trace:
    """Return the trace with its times spread over the grid on which they were written.

    A grid makes bursts that never were. The requests of one time t are spread uniformly, by `seed`, over t up to the next
    time in the trace, at most one cell of the grid (`grid_ns`, else the format's); they keep their order, and nobody
    overtakes a later time. The first need not stay at 0. Raises ConfigError for a cell under 1 ns.
    """
    cell_ns = GRID_NS[trace.format] if grid_ns is None else grid_ns
    if cell_ns < 1:
        raise ConfigError(f"A grid of {cell_ns / NS_PER_MS:g} ms cannot be spread: give a length over 0.")
    random = Random(f"{seed}:dequantise")
    groups = [(time_ns, list(rows)) for time_ns, rows in groupby(trace.rows, key=lambda row: row.offset_ns)]
    times_ns = [time_ns for time_ns, _ in groups]
    spread: list[TraceRow] = []
    for (time_ns, rows), next_ns in zip(groups, [*times_ns[1:], None], strict=True):
        room_ns = cell_ns if next_ns is None else min(cell_ns, next_ns - time_ns)
        steps_ns = sorted(random.randrange(room_ns) for _ in rows)
        spread += [_moved(row, time_ns + step_ns) for row, step_ns in zip(rows, steps_ns, strict=True)]
    return replace(trace, rows=tuple(spread))


def _moved(row: TraceRow, offset_ns: int) -> TraceRow:
    """Return the row at another time; `dataclasses.replace` takes five times as long, and traces have millions of rows."""
    return TraceRow(
        row.line,
        offset_ns,
        row.input_tokens,
        row.output_tokens,
        row.tokens_inferred,
        row.failed,
        row.served_ns,
        row.label,
        row.session,
        row.hash_ids,
        row.http,
    )
