"""Writes what a results file says into docs/performance.md: targets beside what was measured, then every run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scheduling.claims import claims


def markers(results: Path) -> tuple[str, str]:
    """Return what begins and ends the table of a results file: DATE-NAME.json has that of NAME.

    >>> markers(Path("2026-11-30-scheduling.json"))
    ('<!-- scheduling: begin -->', '<!-- scheduling: end -->')
    """
    name = results.stem.split("-", 3)[-1]
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown, of the promises whose cells the raw data has. `source` is its file."""
    return "\n".join((_heading(data, source), "", *_table(data), "", *_runs(data), "", *_servers(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    machine = data["machine"]
    virtual = ", a virtual machine" if machine["virtual_machine"] else ""
    settings = data["settings"]
    capacity = data.get("cases", {}).get("capacity", {}).get("rate")
    told = "" if capacity is None else f" Capacity of the mix: {capacity:.2f} requests/s."
    return (
        f"{data['date']}, {machine['cpu']} ({', '.join(machine['cpu_flags'])}){virtual}, {data['threads']} threads for "
        f"server and client; {data['headway']['version']} ({data['headway']['commit']}), {settings['slots']} slots for "
        f"every server, loads {settings['scale']:g} × as long as usual.{told} Raw data: `{source}`."
    )


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| | target | measured | |"
    yield "|---|---|---|---|"
    words = {True: "met", False: "missed", None: ""}
    for claim in claims(data.get("cases", {})):
        yield f"| {claim.what} | {claim.target} | {claim.measured} | {words[claim.met]} |"


def _runs(data: Mapping[str, Any]) -> Iterator[str]:
    yield "Every run; latencies in milliseconds, of requests that succeeded:"
    yield ""
    yield (
        "| cell | run | group | offered | admitted | answered | met the SLO | TTFT p50 | p95 | ITL p50 | p95 | p99 "
        "| cached | seconds |"
    )
    yield "|---" * 14 + "|"
    for name, case in data.get("cases", {}).items():
        for run_name, run in case.get("runs", {}).items():
            if "all" in run:
                yield from _rows(name, run_name, run)


def _rows(name: str, run_name: str, run: Mapping[str, Any]) -> Iterator[str]:
    doubt = "" if run["believable"] else ", the client was late"
    for group, found in {"all": run["all"], **run["groups"]}.items():
        cells = (
            name,
            f"{run_name}{doubt}",
            group,
            *(str(found[key]) for key in ("offered", "admitted", "ok", "met")),
            *(_cell(found["ttft_ms"][key]) for key in ("p50", "p95")),
            *(_cell(found["itl_ms"][key]) for key in ("p50", "p95", "p99")),
            "-" if found["cached_share"] is None else f"{found['cached_share']:.0%}",
            f"{run['duration_s']:.0f}",
        )
        yield "| " + " | ".join(cells) + " |"


def _servers(data: Mapping[str, Any]) -> Iterator[str]:
    yield "Servers, each on a port of its own, Headway with further options in some cells:"
    yield ""
    yield "```"
    yield from data.get("servers", {}).values()
    yield "```"


def _cell(value: float | str | None) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
