"""Writes what a results file says into docs/performance.md."""

from collections.abc import Iterator, Mapping
from typing import Any

BEGIN, END = "<!-- gateway: begin -->", "<!-- gateway: end -->"
NULL = "null server"
_TARGETS = {"p50": 0.5, "p99": 2.0}
_TARGET_KB = 60


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown. `source` is the raw data's file."""
    return "\n".join((_heading(data, source), "", *_times(data), "", *_memory(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    return (
        f"{data['date']}, {data['rate']} requests a second of {data['callers']} callers, {data['body_bytes']:,} bytes each, "
        f"answered with {data['events']} tokens; {data['rounds']} rounds of {data['seconds']:g} s. Milliseconds beyond the "
        f"null server's median ({data['cases'][NULL]['last_ms']['p50']:.2f}). Raw data: `{source}`."
    )


def _times(data: Mapping[str, Any]) -> Iterator[str]:
    floor = data["cases"][NULL]
    yield "| | first event, p50 | p99 | last event, p50 | p99 | CPU a request |"
    yield "|---" * 6 + "|"
    for name, figures in data["cases"].items():
        if "failure" in figures:
            yield f"| {name} | {figures['failure']} | | | | |"
            continue
        cells = (
            name,
            *(
                f"{figures[which][share] - floor[which]['p50']:.2f}"
                for which in ("first_ms", "last_ms")
                for share in _TARGETS
            ),
            f"{figures['cpu_ms']:.2f}",
        )
        yield "| " + " | ".join(cells) + " |"


def _memory(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"| KB of a stream that waits, of {data['idle_streams']:,} | queued | begun |"
    yield "|---" * 3 + "|"
    for name, taken in data["idle_bytes"].items():
        yield f"| {name} | " + " | ".join(f"{taken[key] / 1024:.0f}" for key in ("queued", "begun")) + " |"
