r"""Reads access logs in nginx's combined format, with or without times behind it.

    $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"

Behind that may stand, in any order, `name=value` or `name="value"` (`request_time`, `rt`; `upstream_response_time`, `urt`;
`msec`; `request_length`) or bare numbers: one of 10 digits and a fraction is $msec, else the first with a fraction is
$request_time and the second $upstream_response_time. Other fields are passed over.

nginx writes a line when the request has ended: arrival = ($msec, else $time_local) - $request_time. Logs count no tokens;
`TokenRule` guesses them from bytes, and every row says so.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.trace import (
    MAX_TOKENS,
    BadRowError,
    HttpFacts,
    TraceRow,
    seconds_ns,
    unix_ns,
)

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_COMBINED = re.compile(
    r"\S+ \S+ .*?\[([^\]]{20,40})\] "
    + _QUOTED
    + r" ([0-9]{3}) ([0-9]{1,18}|-)(?: "
    + _QUOTED
    + " "
    + _QUOTED
    + r")?(?: (.*))?"
)
_TIME_LOCAL = re.compile(
    r"([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) ([+-])([0-9]{2})([0-9]{2})"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S+) (HTTP/[0-9.]+)")
_EXTRA = re.compile(r'(?:([a-z_]+)=)?(?:"((?:[^"\\]|\\.)*)"|([^\s",]+(?:(?:,| :) [^\s"=,]+)*))')
_NUMBER = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_WHOLE = re.compile("[0-9]{1,18}")
_DURATION = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,9})?")
_BETWEEN = re.compile(r"[,:\s]+")
_MSEC = re.compile(r"[0-9]{10}\.[0-9]{1,9}")
_NAMES = {
    "rt": "request_time",
    "request_time": "request_time",
    "urt": "upstream_response_time",
    "upstream_response_time": "upstream_response_time",
    "msec": "msec",
    "request_length": "request_length",
}
_IDENTIFIER = re.compile(r"[0-9]+|[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class TokenRule:
    """How tokens are guessed from bytes: bytes divided by these, rounded, at least one.

    Four bytes a token is the usual measure of English and code. A streamed chat completion spends some 200 bytes of framing
    on each token: give `bytes_per_output_token=200` for a log of those. Raises ConfigError for a rule not over 0.
    """

    bytes_per_input_token: float = 4.0
    bytes_per_output_token: float = 4.0

    def __post_init__(self) -> None:
        if not (0 < self.bytes_per_input_token < 1e9 and 0 < self.bytes_per_output_token < 1e9):
            raise ConfigError("Bytes per token must be a number over 0.")


def is_access_log_line(line: str) -> bool:
    """Return whether the line has the combined format's shape, whatever it asked for."""
    return _COMBINED.fullmatch(line) is not None


def parse_access_log_line(number: int, line: str, rule: TokenRule) -> TraceRow:
    """Return the request of one line, its time in ns since 1970; raises BadRowError."""
    match = _COMBINED.fullmatch(line)
    if match is None:
        raise BadRowError("it is not in the combined format")
    time_local, request, status, sent, referer, user_agent, rest = match.groups()
    ended = _time_local(time_local)
    asked = _REQUEST.fullmatch(request)
    if asked is None:
        raise BadRowError(f"its request line is {request[:40]!r}")
    extras = _extras(rest or "")
    served_ns = _duration_ns(extras.get("request_time"))
    upstream_ns = _duration_ns(extras.get("upstream_response_time"))
    ended_ns = seconds_ns(extras["msec"]) if "msec" in extras else unix_ns(ended)
    arrived_ns = ended_ns - (served_ns or 0)
    zone = ended.utcoffset() or timedelta(0)
    sent_bytes = 0 if sent == "-" else int(sent)
    received = extras.get("request_length")
    received_bytes = int(received) if received and _WHOLE.fullmatch(received) else None
    path = route(asked[2])
    return TraceRow(
        number,
        arrived_ns,
        None if received_bytes is None else _tokens(received_bytes, rule.bytes_per_input_token),
        _tokens(sent_bytes, rule.bytes_per_output_token),
        tokens_inferred=True,
        failed=int(status) >= 400,
        served_ns=upstream_ns if served_ns is None else served_ns,
        label=path,
        http=HttpFacts(
            method=asked[1],
            path=path,
            protocol=asked[3],
            status=int(status),
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
            user_agent=_absent(user_agent),
            referer=_absent(referer),
            hour=(arrived_ns // NS_PER_S + round(zone.total_seconds())) // 3600 % 24,
        ),
    )


def route(target: str) -> str:
    """Return the path that requests are counted under: no query, and `:id` for numbers, UUIDs and long hexadecimals."""
    path = target.split("?", 1)[0].split("#", 1)[0]
    return "/".join(":id" if _IDENTIFIER.fullmatch(part) else part for part in path.split("/"))


def _extras(rest: str) -> dict[str, str]:
    found: dict[str, str] = {}
    bare: list[str] = []
    for name, quoted, plain in _EXTRA.findall(rest):
        value = quoted or plain
        if name in _NAMES:
            if value != "-":
                found.setdefault(_NAMES[name], value)
        elif not name and _MSEC.fullmatch(value):
            found.setdefault("msec", value)
        elif not name and (value == "-" or all(_NUMBER.fullmatch(part) for part in _parts(value))):
            bare.append(value)
    if "msec" in found and not _MSEC.fullmatch(found["msec"]):
        raise BadRowError(f"its msec is {found['msec'][:40]!r}")
    # A dash before any number is some other empty field, such as $http_x_forwarded_for.
    while bare and bare[0] == "-":
        del bare[0]
    for name, value in zip(("request_time", "upstream_response_time"), bare, strict=False):
        if value != "-":
            found.setdefault(name, value)
    return found


def _parts(value: str) -> list[str]:
    """Split the times of several upstreams: commas between tries, colons between groups, a dash for one not reached."""
    return [part for part in _BETWEEN.split(value) if part not in ("", "-")] or [""]


def _duration_ns(value: str | None) -> int | None:
    if value is None:
        return None
    parts = _parts(value)
    if not all(_DURATION.fullmatch(part) for part in parts):
        raise BadRowError(f"its time is {value[:40]!r}, no number of seconds")
    return sum(map(seconds_ns, parts))


def _time_local(text: str) -> datetime:
    match = _TIME_LOCAL.fullmatch(text)
    if match is None or match[2] not in _MONTHS or not 1970 <= int(match[3]) < 9999:
        raise BadRowError(f"its time is {text[:40]!r}")
    offset = timedelta(hours=int(match[8]), minutes=int(match[9]))
    try:
        return datetime(
            int(match[3]),
            _MONTHS.index(match[2]) + 1,
            int(match[1]),
            int(match[4]),
            int(match[5]),
            int(match[6]),
            tzinfo=timezone(-offset if match[7] == "-" else offset),
        )
    except ValueError:
        raise BadRowError(f"its time is {text[:40]!r}") from None


def _tokens(num_bytes: int, bytes_per_token: float) -> int:
    return min(MAX_TOKENS, max(1, round(num_bytes / bytes_per_token)))


def _absent(value: str | None) -> str:
    return "" if value in (None, "-") else str(value)
