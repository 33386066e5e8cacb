"""Reads the CSV traces: Azure's LLM inference traces (2023, 2024) and BurstGPT's (both generations of its header).

Columns are found by their names, so new ones do no harm. Numbers become nanoseconds without passing through floating point:
Azure writes seven digits of a second, which `strptime` refuses and a double of seconds since 1970 cannot hold.
"""

import csv
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from sys import intern

from headway.lab.trace import MAX_TOKENS, BadRowError, TraceFormat, TraceRow, seconds_ns, unix_ns

LineParser = Callable[[int, str], TraceRow]

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,18})?")
_COUNT = re.compile(r"([0-9]{1,10})(?:\.0+)?")  # programs that know no missing integers write 12.0


def table_parser(header: str) -> tuple[TraceFormat, LineParser] | None:
    """Return the format that a file's first line names and the parser of its other lines, or None."""
    columns = _fields(header)
    names = [column.strip().lower() for column in columns or ()]
    if {"timestamp", "contexttokens", "generatedtokens"} <= set(names):
        return TraceFormat.AZURE, lambda number, line: _azure(number, _row(names, line))
    if {"timestamp", "request tokens", "response tokens"} <= set(names):
        return TraceFormat.BURSTGPT, lambda number, line: _burstgpt(number, _row(names, line))
    return None


def _azure(number: int, row: Mapping[str, str]) -> TraceRow:
    return TraceRow(
        number,
        _timestamp_ns(row["timestamp"].strip()),
        _count(row, "contexttokens"),
        _count(row, "generatedtokens"),
    )


def _burstgpt(number: int, row: Mapping[str, str]) -> TraceRow:
    output_tokens = _count(row, "response tokens")
    elapsed = row.get("elapsed time", "").strip()
    return TraceRow(
        number,
        _ns_of_seconds(row["timestamp"].strip(), "timestamp"),
        _count(row, "request tokens"),
        output_tokens,
        failed=output_tokens == 0,
        served_ns=_ns_of_seconds(elapsed, "elapsed time") if elapsed else None,
        label=intern(row.get("model", "").strip()),  # a few names in a million rows
        session=row.get("session id", "").strip() or None,
    )


def _fields(line: str) -> list[str] | None:
    """Return the fields of one line, None where it is no CSV."""
    try:
        return next(csv.reader([line]), None)
    except csv.Error:
        return None


def _row(names: list[str], line: str) -> dict[str, str]:
    fields = _fields(line)
    if fields is None or len(fields) != len(names):
        raise BadRowError(f"it has {len(fields or ())} fields where the header has {len(names)}")
    return dict(zip(names, fields, strict=True))


def _count(row: Mapping[str, str], name: str) -> int:
    text = row[name].strip()
    match = _COUNT.fullmatch(text)
    if match is None or (count := int(match[1])) > MAX_TOKENS:
        raise BadRowError(f"its {name} are {text[:40]!r}, no number of tokens")
    return count


def _ns_of_seconds(text: str, name: str) -> int:
    if _SECONDS.fullmatch(text) is None:
        raise BadRowError(f"its {name} is {text[:40]!r}, no number of seconds")
    return seconds_ns(text)


def _timestamp_ns(text: str) -> int:
    """Return the time in ns since 1970; one without a zone is UTC."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        whole = datetime.fromisoformat(f"{match[1]}{match[3] or '+00:00'}") if match else None
    except ValueError:
        whole = None
    if match is None or whole is None:
        raise BadRowError(f"its timestamp is {text[:40]!r}, no date and time")
    return unix_ns(whole) + int((match[2] or "").ljust(9, "0"))
