"""Reads a trace from a file, whichever of the known formats it has: found by its content, not by its name.

It knows where lines come from and who can read them; what they mean is each format's own.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO

from headway.core.errors import ConfigError
from headway.lab.trace import BadRow, BadRowError, Trace, TraceFormat, TraceRow, build_trace
from headway.lab.trace_access_log import TokenRule, is_access_log_line, parse_access_log_line
from headway.lab.trace_mooncake import parse_mooncake
from headway.lab.trace_tables import LineParser, table_parser

_NUM_LOOKED_AT = 20
"""A log may begin with garbage that some scanner sent: so many lines are looked at before a file counts as unknown."""

_GZIP_MAGIC = b"\x1f\x8b"


def read_trace(path: Path, rule: TokenRule | None = None) -> Trace:
    """Return the trace in a file, gzipped or not.

    Raises ConfigError when it cannot be read, has no row, or none in a known format.
    """
    try:
        with _opened(path) as file:
            return parse_trace((line.decode("utf-8", "replace") for line in file), rule)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"The trace {path} cannot be read: {error}.") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def parse_trace(lines: Iterable[str], rule: TokenRule | None = None) -> Trace:
    """Return the trace in the lines of a file; blank lines are no rows.

    `rule` says how an access log's bytes become tokens. Raises ConfigError as `read_trace` does.
    """
    numbered = ((number, line) for number, raw in enumerate(lines, 1) if (line := raw.strip("\ufeff\r\n\t ")))
    first: list[tuple[int, str]] = []
    for numbered_line in numbered:
        first.append(numbered_line)
        if len(first) == _NUM_LOOKED_AT:
            break
    if not first:
        raise ConfigError("The trace is empty.")
    known = table_parser(first[0][1])
    if known is not None:
        del first[0]
    else:
        known = _row_parser([line for _, line in first], rule or TokenRule())
    format_, parse = known
    return build_trace(format_, _rows(chain(first, numbered), parse))


def _row_parser(first_lines: list[str], rule: TokenRule) -> tuple[TraceFormat, LineParser]:
    for line in first_lines:
        if line.startswith("{") and '"timestamp"' in line:
            return TraceFormat.MOONCAKE, parse_mooncake
        if is_access_log_line(line):
            return TraceFormat.ACCESS_LOG, partial(parse_access_log_line, rule=rule)
    raise ConfigError(
        "The trace has none of the known formats: Mooncake JSONL, Azure CSV, BurstGPT CSV, access log (combined)."
    )


def _rows(numbered: Iterable[tuple[int, str]], parse: LineParser) -> Iterator[TraceRow | BadRow]:
    for number, line in numbered:
        try:
            yield parse(number, line)
        except BadRowError as error:
            yield BadRow(number, str(error))


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    file = path.open("rb")
    magic = file.read(2)
    file.seek(0)
    if magic == _GZIP_MAGIC:
        file.close()
        return gzip.open(path, "rb")
    return file
