"""Writes what a results file says into docs/performance.md, between two markers."""

from collections.abc import Iterator, Mapping
from typing import Any

from prompts.summary import figures
from prompts.ways import WAYS

BEGIN, END = "<!-- prompts: begin -->", "<!-- prompts: end -->"


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown. `source` is the raw data's file."""
    return "\n".join((_heading(data, source), "", *_table(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    machine = data["machine"]
    virtual = ", a virtual machine" if machine["virtual_machine"] else ""
    num = data["settings"]["conversations"]
    return (
        f"{data['date']}, {machine['cpu']} ({', '.join(machine['cpu_flags'])}){virtual}, {data['threads']} threads; "
        f"{data['headway']['version']} ({data['headway']['commit']}), the demo model; {num} conversations of five turns. "
        f"Raw data: `{source}`."
    )


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "| | tokens sent a call | computed a call | turns 4 and 5: sent | computed | TTFT p50, ms | p95 "
        "| for summaries: computed a conversation | ms each | facts in the prompt |"
    )
    yield "|---" * 10 + "|"
    for name, case in data.get("cases", {}).items():
        found = figures(case["runs"]["all"])
        cells = (
            WAYS[name].title,
            *(
                f"{value:,.0f}"
                for value in (found.sent, found.computed, found.late_sent, found.late_computed)
            ),
            *(f"{value:,.0f}" for value in (found.late_ttft_ms, found.late_ttft_p95_ms)),
            f"{found.summary_computed:,.0f}",
            "-" if found.summary_ms is None else f"{found.summary_ms:,.0f}",
            f"{found.facts_kept} of {found.facts_needed}",
        )
        yield "| " + " | ".join(cells) + " |"
