"""Writes what a results file says into docs/performance.md."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway_overhead.cases import NULL

BEGIN, END = "<!-- gateway: begin -->", "<!-- gateway: end -->"


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown. `source` is the raw data's file."""
    return "\n".join((_heading(data, source), "", *_times(data), "", *_memory(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    floor, machine = data["cases"][NULL]["last_ms"]["p50"], data["machine"]
    return (
        f"{data['date']}, {machine['cpu']}, {machine['cores']} cores; "
        f"{data['callers']} callers, bodies of {data['body_bytes']:,} bytes, answers of "
        f"{data['events']} tokens; {data['rounds']} rounds of {data['seconds']:g} s by turns. Milliseconds beyond the null "
        f"server's median, which is {floor:.2f}. Raw data: `{source}`."
    )


def _times(data: Mapping[str, Any]) -> Iterator[str]:
    floor = data["cases"][NULL]
    yield "| | requests/s | first event, p50 | p99 | last event, p50 | p99 | CPU of a request |"
    yield "|---" * 7 + "|"
    for name, figures in data["cases"].items():
        beyond = (
            f"{figures[which][share] - floor[which]['p50']:.2f}"
            for which in ("first_ms", "last_ms")
            for share in ("p50", "p99")
        )
        yield "| " + " | ".join((name, str(figures["rate"]), *beyond, f"{figures['cpu_ms']:.2f}")) + " |"


def _memory(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {data['idle_streams']:,} streams that wait, KB each | queued | begun |"
    yield "|---" * 3 + "|"
    for name, taken in data["idle_bytes"].items():
        yield f"| {name} | " + " | ".join(f"{taken[key] / 1024:.0f}" for key in ("queued", "begun")) + " |"
