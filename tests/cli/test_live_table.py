"""The table of a run that goes on: what it says, and in how many columns."""

import io
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headway.cli.live_table import render
from headway.lab.progress import Snapshot, Span, Spread


def spread(p50: float | None, p95: float | None, p99: float | None, n: int = 500) -> Spread:
    return Spread(n=n, percentiles=MappingProxyType({"p50": p50, "p95": p95, "p99": p99}))


NOTHING = spread(None, None, None, 0)


def span(seconds: float = 20, num_ended: int = 42, **changes: object) -> Span:
    values: dict[str, object] = {
        "num_ok": 40,
        "output_tokens": 5000,
        "lag": spread(0.01, 0.02, 0.03),
        "ttft": spread(120.04, 1234.5, 99_999.9),
        "itl": spread(9.994, 9.996, None),
    }
    return Span(seconds=seconds, num_ended=num_ended, **values | changes)  # type: ignore[arg-type]


def snapshot(**changes: object) -> Snapshot:
    values: dict[str, object] = {
        "has_begun": True,
        "whole": span(),
        "recent": span(10.5, 21),
        "num_running": 3,
        "num_planned": 100,
        "planned_s": None,
        "failures": MappingProxyType({}),
    }
    return Snapshot(**values | changes)  # type: ignore[arg-type]


def shown(found: Snapshot, width: int) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO())
    for line in render(found, "127.0.0.1:8000: light, poisson:5", width):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    return console.export_text().splitlines()


def test_it_says_how_far_the_run_is_and_how_fast() -> None:
    lines = shown(snapshot(), 120)
    assert lines[:3] == [
        "127.0.0.1:8000: light, poisson:5",
        f"42 of 100 requests · 0:20 · 42% · 0:29 left  {'━' * 30}",
        "offered 2.25/s · answered 2/s, of late 3.81 · in flight 3 · 250 tokens/s, of late 476",
    ]
    assert [line.split() for line in lines[3:]] == [
        ["ms", "p50", "p95", "p99"],
        ["TTFT", "120.0", "1,234", "100,000"],
        ["last", "10", "s", "120.0", "1,234", "100,000"],
        ["ITL", "9.99", "10.0", "-"],
        ["last", "10", "s", "9.99", "10.0", "-"],
        ["client's", "lag", "0.01", "0.02", "0.03"],
        ["last", "10", "s", "0.01", "0.02", "0.03"],
    ]


def test_columns_stand_below_each_other() -> None:
    rows = shown(snapshot(), 80)[-7:]
    assert {len(row) for row in rows} == {39}


@given(
    st.integers(40, 200),
    st.one_of(st.none(), st.integers(0, 10**7)),
    st.one_of(st.none(), st.floats(0, 10**6)),
    st.integers(0, 10**6),
    st.dictionaries(
        st.sampled_from(["closed", "refused_429", "error_event", "connection", "silence"]),
        st.integers(1, 10**6),
    ),
)
def test_it_fits_into_any_width_from_40_on(
    width: int, num_planned: int | None, planned_s: float | None, num_ended: int, failures: dict[str, int]
) -> None:
    found = snapshot(
        whole=span(3_000, num_ended, num_ok=num_ended),
        num_planned=num_planned,
        planned_s=planned_s,
        failures=MappingProxyType(failures),
    )
    lines = shown(found, width)
    assert all(len(line) <= width and "…" not in line for line in lines)
    assert len(lines) <= 22


def test_a_narrower_terminal_cuts() -> None:
    assert all(len(line) <= 20 for line in shown(snapshot(), 20))


def test_failures_are_told_by_kind() -> None:
    lines = shown(snapshot(failures=MappingProxyType({"refused_429": 1200, "closed": 1})), 80)
    assert lines[-1] == "1,201 failed · refused_429 1,200 · closed 1"


@pytest.mark.parametrize(
    ("planned_s", "left"), [(7300, "2:01:20 left"), (65, "0:45 left"), (10, "0:00 left")]
)
def test_time_left_is_read_as_a_clock(planned_s: float, left: str) -> None:
    assert left in shown(snapshot(num_planned=None, planned_s=planned_s), 80)[1]


def test_without_an_end_there_is_neither_share_nor_time_left() -> None:
    line = shown(snapshot(num_planned=None), 80)[1]
    assert line == "42 requests · 0:20"


def test_before_the_first_request_it_says_so() -> None:
    found = snapshot(has_begun=False, whole=span(0, 0, lag=NOTHING, ttft=NOTHING, itl=NOTHING))
    assert shown(found, 80) == ["127.0.0.1:8000: light, poisson:5", "preparing"]


def test_nothing_ended_yet_is_dashes() -> None:
    nothing = span(0, 0, num_ok=0, output_tokens=0, lag=NOTHING, ttft=NOTHING, itl=NOTHING)
    lines = shown(snapshot(whole=nothing, recent=nothing), 120)
    assert lines[2].startswith("offered -/s · answered -/s, of late - · in flight 3")
    assert lines[4].split() == ["TTFT", "-", "-", "-"]


def test_a_client_that_is_late_is_marked() -> None:
    for p99, style in ((9.9, "bold"), (10.1, "bold red")):
        late = snapshot(whole=span(lag=spread(0.1, 0.2, p99)))
        [line] = [line for line in render(late, "x", 80) if line.plain.startswith("client's lag")]
        assert line.style == style
