"""What an access log tells of its traffic, and what is only inferred from it."""

from pathlib import Path

import pytest

from headway.core.clock import NS_PER_MS
from headway.core.errors import ConfigError
from headway.lab.access_summary import summarise_access
from headway.lab.trace import HttpFacts, TraceFormat
from headway.lab.trace_access_log import TokenRule, route
from headway.lab.traces import parse_trace, read_trace

DATA = Path(__file__).parent / "data"


def line(extra: str, *, request: str = "GET / HTTP/1.1", status: int = 200) -> str:
    return f'192.0.2.1 - - [10/May/2024:14:00:10 +0000] "{request}" {status} 8 "-" "-" {extra}'.rstrip()


def test_the_combined_format_has_whole_seconds_and_features() -> None:
    trace = read_trace(DATA / "access_combined.log")
    assert trace.format is TraceFormat.ACCESS_LOG
    assert [row.offset_ns / NS_PER_MS for row in trace.rows] == [0, 0, 1000, 36_864_000]
    assert trace.rows[1].http == HttpFacts(
        method="GET",
        path="/items/:id/parts",
        protocol="HTTP/1.1",
        status=200,
        sent_bytes=1200,
        received_bytes=None,
        user_agent='Mozilla/5.0 (X11; \\"quoted\\")',
        referer="https://shop.example/list",
        hour=13,
    )
    assert [row.failed for row in trace.rows] == [False, False, True, False]
    assert {row.served_ns for row in trace.rows} == {None}


def test_lines_that_ask_for_nothing_are_bad_and_named() -> None:
    trace = read_trace(DATA / "access_combined.log")
    assert [(bad.line, bad.reason) for bad in trace.bad_rows] == [
        (1, "it is not in the combined format"),
        (2, r"its request line is '\\x16\\x03\\x01'"),
        (6, "its time is '10/May/2024:23:59:60 +0200'"),
    ]


def test_a_request_arrived_before_it_was_logged() -> None:
    trace = read_trace(DATA / "access_timed.log")
    # Logged at 2.250 after 2.5 s, 1.100 after 0.25, 3.000 after 1, 9.000 after 9, 4.001 after 0.001 (seconds past 14:00:00).
    assert [(row.line, row.offset_ns / NS_PER_MS) for row in trace.rows] == [
        (1, 0),
        (4, 250),
        (2, 1100),
        (3, 2250),
        (5, 4250),
    ]
    assert trace.num_out_of_order == 1
    assert [bad.line for bad in trace.bad_rows] == [6]


def test_tokens_are_inferred_from_bytes_and_say_so() -> None:
    rows = read_trace(DATA / "access_timed.log").rows
    assert all(row.tokens_inferred for row in rows)
    assert [row.output_tokens for row in rows] == [450, 1, 22, 100, 1]
    assert [row.input_tokens for row in rows] == [None, None, None, 500, None]
    streamed = read_trace(DATA / "access_timed.log", TokenRule(bytes_per_output_token=200)).rows
    assert [row.output_tokens for row in streamed] == [9, 1, 1, 2, 1]


@pytest.mark.parametrize("rule", [(0.0, 4.0), (4.0, -1.0), (float("nan"), 4.0)])
def test_a_token_rule_must_be_over_zero(rule: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="over 0"):
        TokenRule(*rule)


@pytest.mark.parametrize(
    ("extra", "served_ms"),
    [
        ("", None),
        ("0.250", 250),
        ('"-" 0.250 0.125', 250),
        ("- 0.125", 125),
        ("512 0.250", 250),
        ("1715349610.000 0.250", 250),
        ("rt=0.250 urt=0.125", 250),
        ("urt=0.125", 125),
        ('upstream_response_time="0.100, 0.050"', 150),
        ("upstream_response_time=0.100, 0.050", 150),
        ('urt="0.100 : 0.050"', 150),
        ('urt="-, 0.050"', 50),
        ("rt=- urt=-", None),
        ('host="api.example" 0.250', 250),
    ],
)
def test_times_are_found_by_name_or_by_shape(extra: str, served_ms: float | None) -> None:
    [row] = parse_trace([line(extra)]).rows
    assert row.served_ns == (None if served_ms is None else served_ms * NS_PER_MS)


def test_zones_are_one_time_line_and_hours_stay_local() -> None:
    logged = ("10/May/2024:14:00:10 +0000", "10/May/2024:07:30:11 -0630", "10/May/2024:19:30:12 +0530")
    rows = parse_trace([line("").replace(logged[0], time) for time in logged]).rows
    assert [row.offset_ns / NS_PER_MS for row in rows] == [0, 1000, 2000]
    assert [row.http.hour for row in rows if row.http] == [14, 7, 19]


@pytest.mark.parametrize("extra", ["rt=fast", "msec=yesterday", 'urt="0.1, x"'])
def test_a_named_time_that_is_none_makes_a_bad_row(extra: str) -> None:
    trace = parse_trace([line(extra), line("")])
    assert [bad.line for bad in trace.bad_rows] == [1]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/", "/"),
        ("/v1/chat/completions?x=1", "/v1/chat/completions"),
        ("/users/12/cards/7", "/users/:id/cards/:id"),
        ("/files/deadbeef01", "/files/:id"),
        ("/files/0c0ffee0-1111-2222-3333-444455556666#top", "/files/:id"),
        ("/cafe/v2", "/cafe/v2"),
    ],
)
def test_routes_forget_queries_and_identifiers(target: str, expected: str) -> None:
    assert route(target) == expected


def test_the_summary_weighs_routes_and_times_those_that_succeeded() -> None:
    summary = summarise_access(read_trace(DATA / "access_timed.log"))
    chat, health = summary.routes
    assert (chat.method, chat.path, chat.num_requests, chat.weight) == (
        "POST",
        "/v1/chat/completions",
        4,
        0.8,
    )
    assert (chat.num_failed, chat.num_timed, chat.p95_ms) == (1, 3, 2500)
    assert (health.path, health.weight, health.p95_ms) == ("/health", 0.2, 1)
    assert summary.arrivals_by_hour == (0,) * 13 + (1,) + (4,) + (0,) * 9
    assert summary.methods == (("POST", 0.8), ("GET", 0.2))
    assert summary.clients == (("ide", 0.8), ("probe", 0.2))


def test_the_95th_percentile_is_a_latency_that_was_seen() -> None:
    lines = [line(f"rt={ms / 1000:.3f}") for ms in range(1, 101)]
    [only] = summarise_access(parse_trace(lines)).routes
    assert only.p95_ms == 95


def test_the_summary_counts_features() -> None:
    summary = summarise_access(read_trace(DATA / "access_combined.log"))
    assert summary.clients == (("curl", 0.5), ("Mozilla", 0.25), ("ide-plugin", 0.25))
    assert summary.referers == (("", 0.75), ("shop.example", 0.25))
    assert summary.protocols == (("HTTP/1.1", 0.75), ("HTTP/2.0", 0.25))
    assert summary.arrivals_by_hour[13] == 3
    assert summary.arrivals_by_hour[0] == 1
    assert all(one.p95_ms is None for one in summary.routes)


def test_a_trace_that_is_no_log_has_no_summary() -> None:
    summary = summarise_access(read_trace(DATA / "mooncake.jsonl"))
    assert summary.routes == ()
    assert sum(summary.arrivals_by_hour) == 0
