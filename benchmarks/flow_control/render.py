"""Writes what a results file says into docs/performance.md."""

from collections.abc import Iterator, Mapping
from typing import Any

BEGIN, END = "<!-- flow: begin -->", "<!-- flow: end -->"


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown. `source` is the raw data's file."""
    return "\n".join((_heading(data, source), "", *_table(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    return (
        f"{data['date']}, {data['seconds']} s of virtual time, seed {data['seed']}. Served: with a first token within "
        f"2 s. The gateway's core: its time, for this group. Raw data: `{source}`."
    )


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| beside everybody | limits | group | offered | served | 429 | 503 | TTFT p50, ms | p99 | the gateway's core |"
    yield "|---" * 10 + "|"
    for load, limiters in data["loads"].items():
        for limiter, found in limiters.items():
            for group, figures in found["groups"].items():
                ttft = figures["ttft_ms"]
                cells = (
                    load,
                    limiter,
                    group,
                    f"{figures['offered']:,}",
                    "—" if figures["answered_4xx"] else f"{figures['served'] / figures['offered']:.1%}",
                    f"{figures['refused_429'] / figures['offered']:.1%}",
                    f"{figures['refused_503'] / figures['offered']:.1%}",
                    *("" if ttft[key] is None else f"{ttft[key]:,.0f}" for key in ("p50", "p99")),
                    f"{found['gateway_busy'][group]:.1%}",
                )
                yield "| " + " | ".join(cells) + " |"
