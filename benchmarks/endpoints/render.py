"""Writes what a results file says as tables for docs/performance.md. It measures nothing."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from endpoints.cells import CELLS
from endpoints.servers import SERVERS, TITLES

BEGIN, END = "<!-- endpoints: begin -->", "<!-- endpoints: end -->"

_GLANCE = (("TTFT p50, ms", "ttft_ms", "p50"), ("TPOT p50, ms", "tpot_ms", "p50"))
_DETAILS = (
    ("TTFT p50", "ttft_ms", "p50"),
    ("TTFT p95", "ttft_ms", "p95"),
    ("TPOT p50", "tpot_ms", "p50"),
    ("TPOT p95", "tpot_ms", "p95"),
    ("ITL p50", "itl_ms", "p50"),
    ("ITL p95", "itl_ms", "p95"),
    ("E2E p50", "e2e_ms", "p50"),
    ("E2E p95", "e2e_ms", "p95"),
)

Run = Mapping[str, Any]
Case = Mapping[str, Any]


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown: where it was measured, TTFT and TPOT at a glance, every figure. `source` is the raw data's file."""
    cases = _cases(data)
    return "\n".join(
        (
            *_heading(data, source),
            "",
            *_glance(cases),
            "",
            *_doubts(data, cases),
            "",
            "Every figure, in milliseconds but for the last three columns: median of the rounds (smallest to largest).",
            "",
            *_details(cases),
            "",
            *_commands(data),
        )
    )


def _cases(data: Mapping[str, Any]) -> dict[str, Case]:
    """Return the cases in the order of the cells, others behind."""
    measured = data.get("cases", {})
    names = dict.fromkeys((*(cell.name for cell in CELLS), *measured))
    return {name: measured[name] for name in names if name in measured}


def _heading(data: Mapping[str, Any], source: str) -> Iterator[str]:
    machine = data["machine"]
    virtual = ", a virtual machine" if machine["virtual_machine"] else ""
    versions = ", ".join(
        lines[-1] if peer != "vllm" else lines[1] for peer, lines in data["requirements"].items()
    )
    yield (
        f"{data['date']}, {machine['cpu']} ({', '.join(machine['cpu_flags'])}){virtual}, {data['threads']} threads; "
        f"{data['headway']['version']} ({data['headway']['commit']}), {versions}. Answers of at most "
        f"{data['settings']['output_tokens']} tokens. Raw data: `{source}`."
    )


def _glance(cases: Mapping[str, Case]) -> Iterator[str]:
    columns = [f"{TITLES[server]} {label}" for label, *_ in _GLANCE for server in SERVERS]
    columns += [f"{TITLES[server]} tokens/s" for server in SERVERS]
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for case in cases.values():
        cells = [
            _median([latency(run, case, figure, key) for run in _good(case, server)])
            for _, figure, key in _GLANCE
            for server in SERVERS
        ]
        cells += [_median([rate(run) for run in _good(case, server)]) for server in SERVERS]
        yield f"| {_label(case)} | " + " | ".join(cells) + " |"


def _details(cases: Mapping[str, Case]) -> Iterator[str]:
    columns = [label for label, *_ in _DETAILS] + ["tokens/s", "tokens an answer", "failed"]
    yield "| | | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 2) + "|"
    for case in cases.values():
        for server in SERVERS:
            runs = _good(case, server)
            if not case["runs"].get(server):
                continue
            cells = [
                _spread([latency(run, case, figure, key) for run in runs]) for _, figure, key in _DETAILS
            ]
            cells += [
                _spread([rate(run) for run in runs]),
                _spread([run["output_tokens"] / run["ok"] if run["ok"] else None for run in runs]),
                _failed(case["runs"][server]),
            ]
            yield f"| {_label(case)} | {TITLES[server]} | " + " | ".join(cells) + " |"


def latency(run: Run, case: Case, figure: str, key: str) -> float | None:
    """Return a figure of a run, of the case's turn where it has one; None if the run cannot tell."""
    if case["turn"] is not None:
        turns = [one for one in run.get("by_turn", ()) if one["turn"] == case["turn"]]
        run = turns[0] if turns else {}
    value = run.get(figure, {}).get(key)
    return value if isinstance(value, int | float) else None


def rate(run: Run) -> float | None:
    """Return tokens a second of the whole run."""
    value = run["rate"]["output_tok_s"]
    return value if isinstance(value, int | float) else None


def _doubts(data: Mapping[str, Any], cases: Mapping[str, Case]) -> Iterator[str]:
    runs = [run for case in cases.values() for runs in case["runs"].values() for run in runs]
    good = [run for run in runs if "error" not in run]
    lags = [run["lag_ms"]["p95"] for run in good if run["lag_ms"]["p95"] is not None]
    late = sum(not run["believable"] for run in good)
    told = (
        f"The client sent 95 of 100 requests within {max(lags):.1f} ms of when they were due in its worst run"
        if lags
        else "No lag"
    )
    yield (
        f"{told}; {late or 'none'} of {len(good)} runs had to be doubted for it. Neighbours of the machine took at most "
        f"{max((run['stolen'] for run in runs), default=0):.0%} of a run."
    )
    counts = {TITLES[server]: count for server, count in data.get("prompt_tokens", {}).items()}
    told = ", ".join(f"{title} {count}" for title, count in counts.items())
    same = "the same for all" if len(set(counts.values())) == 1 else "NOT the same"
    yield f"Tokens that the servers make of one prompt: {told}: {same}."


def _commands(data: Mapping[str, Any]) -> Iterator[str]:
    yield "Servers, each on a port of its own:"
    yield ""
    yield "```"
    for server in SERVERS:
        if command := data.get("servers", {}).get(server):
            yield command
    yield "```"


def _label(case: Case) -> str:
    return f"{case['title']}, `{case['arrival']}`"


def _good(case: Case, server: str) -> list[Run]:
    return [run for run in case["runs"].get(server, ()) if "error" not in run]


def _failed(runs: Sequence[Run]) -> str:
    lost = sum(run["offered"] - run["ok"] for run in runs if "error" not in run)
    broken = sum("error" in run for run in runs)
    return f"{lost}" + (f", and {broken} runs" if broken else "")


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(statistics.median(known)) if known else "-"


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return _median(known)
    return f"{_median(known)} ({_number(min(known))} to {_number(max(known))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
