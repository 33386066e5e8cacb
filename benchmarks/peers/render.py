"""Writes what a results file says into docs/performance.md, between two markers, and nothing else there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers.cases import CASES
from peers.places import HEADWAY, LLAMA_CPP, OPENVINO
from peers.summary import spread

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
SIDES = {HEADWAY: "Headway", LLAMA_CPP: "llama.cpp", OPENVINO: "OpenVINO GenAI"}

VERDICTS = (
    "A ratio is Headway's speed over the peer's, followed by what it should be at least and the aim: below the first it is "
    "*missed*, from there on *met*, from the second on *aim reached*. Where single rounds say otherwise, it is told in how "
    "many of them the bound was reached: a busy machine slows the sides down unequally."
)


def replace_table(document: Path, table: str, begin: str = BEGIN, end: str = END) -> None:
    """Put `table` between the markers; raises ValueError if they are not there, once, in this order."""
    head, found, rest = document.read_text().partition(begin)
    _, ended, tail = rest.partition(end)
    if not found or not ended or begin in rest or end in tail:
        raise ValueError(f"{document.name} needs {begin} and {end}, once")
    document.write_text(f"{head}{begin}\n\n{table.strip()}\n\n{end}{tail}")


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown: the machine, the table, the settings that were best. `source` is the file the numbers are from."""
    return "\n".join((_heading(data, source), "", *_table(data), "", VERDICTS, "", *_settings(data)))


def _heading(data: Mapping[str, Any], source: str) -> str:
    machine = data["machine"]
    virtual = ", a virtual machine" if machine["virtual_machine"] else ""
    versions = data.get("versions", {})
    peers = ", ".join(
        f"{SIDES[peer]} {versions[peer]['version']} ({data['requirements'][peer][0]})"
        for peer in versions
        if peer in SIDES
    )
    return (
        f"{data['date']}, {machine['cpu']} ({', '.join(machine['cpu_flags'])}){virtual}, {data['threads']} threads; "
        f"{peers}. "
        f"Tokens a second, medians; in brackets (largest - smallest) ÷ median. Raw data: `{source}`."
    )


def _table(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| | " + " | ".join(SIDES.values()) + " | ratio (at least, aim) |"
    yield "|---" * (len(SIDES) + 2) + "|"
    measured = data.get("cases", {})
    titles = {case.name: case.title for case in CASES}
    for name in dict.fromkeys((*titles, *measured)):
        case = measured.get(name)
        if case is None:
            yield f"| {titles[name]} |" + " |" * len(SIDES) + " not measured |"
            continue
        if "error" in case:
            yield f"| {case['title']} |" + " |" * len(SIDES) + f" not measured: {case['error']} |"
            continue
        cells = [_figure(case, side) for side in SIDES]
        verdicts = "; ".join(_verdict(case, found) for found in case["comparisons"])
        yield "| " + " | ".join((case["title"], *cells, verdicts)) + " |"


def _figure(case: Mapping[str, Any], side: str) -> str:
    runs = [run["tok_s"] for run in case["runs"].get(side, ())]
    if not runs:
        return ""
    median = case["median"][side]
    return f"{median:,.{0 if median >= 100 else 1}f} ({spread(runs):.0%} of {len(runs)})"


def _verdict(case: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    word = "aim reached" if found["aim_met"] else "met" if found["met"] else "missed"
    bound = found["aim"] if found["aim_met"] else found["at_least"]
    sides = (case["runs"][side] for side in (HEADWAY, found["against"]))
    reached = [ours["tok_s"] / theirs["tok_s"] >= bound for ours, theirs in zip(*sides, strict=False)]
    if not all(one is found["met"] for one in reached):
        word += f", in {sum(reached)} of {len(reached)} rounds"
    ratio = f"{found['ratio']:.2f}×"
    return f"{ratio} {SIDES[found['against']]} ({found['at_least']}×, {found['aim']}×): {word}"


def _settings(data: Mapping[str, Any]) -> Iterator[str]:
    yield "Settings that were best, of those tried (all in the file):"
    yield ""
    yield "| settings found with | " + " | ".join(SIDES[peer] for peer in (LLAMA_CPP, OPENVINO)) + " |"
    yield "|---|---|---|"
    for name, sweeps in data.get("sweeps", {}).items():
        cells = (_chosen(sweeps[peer]["best"]) if peer in sweeps else "" for peer in (LLAMA_CPP, OPENVINO))
        yield f"| {name} | " + " | ".join(cells) + " |"


def _chosen(settings: Mapping[str, Any]) -> str:
    words = {True: "on", False: "off", None: "default"}
    return ", ".join(
        f"{name} {words[value] if isinstance(value, bool | None) else value}"
        for name, value in settings.items()
    )
