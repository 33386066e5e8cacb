"""A caller's place in its trace, as W3C Trace Context (level 1, `traceparent`) writes it.

Whether a caller is believed is not decided here: whose header counts can put spans into anybody's trace, and have them kept.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

HEADER: Final = b"traceparent"
_PATTERN: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The span that called us. `sampled`: its trace is recorded."""

    trace_id: int
    span_id: int
    sampled: bool


def parse_trace_parent(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """Return what the header says; None where it is missing, malformed or there twice: then a trace begins here."""
    values = [value for name, value in headers if name == HEADER]
    if len(values) != 1:
        return None
    match = _PATTERN.fullmatch(values[0].strip(b" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == b"ff" or (version == b"00" and rest is not None):  # later versions may say more
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None
