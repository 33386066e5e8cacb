"""The table of docs/simulator.md: how far simulation was off the engine, from what `simulator_accuracy` kept."""

from collections.abc import Mapping
from typing import Any

from peers.places import ROOT

DOCUMENT = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- simulator: begin -->", "<!-- simulator: end -->"
TITLES = {"ttft_p50_ms": "TTFT p50, ms", "ttft_p95_ms": "TTFT p95, ms", "output_tok_s": "tokens/s"}


def render(data: Mapping[str, Any], source: str) -> str:
    """Return Markdown. `source` is the file the numbers are from."""
    settings = data["settings"]
    figures = [each for cell in data["cells"] for each in cell["figures"].values()]
    num_within = sum(each["within"] for each in figures)
    head = (
        f"{data['written_at']}, {settings['model']}, {settings['repeat']} rounds. Each figure: real, simulated, how far "
        f"off, allowed; **bold** where it is further. {num_within} of {len(figures)} are within. Raw data: `{source}`."
    )
    rows = [
        "| workload | of the knee | arrivals/s | requests | " + " | ".join(TITLES.values()) + " |",
        "|---|---|---|---|" + "---|" * len(TITLES),
    ]
    for cell in data["cells"]:
        cells = [
            cell["workload"],
            f"{cell['share']:.0%}",
            cell["arrival"].removeprefix("poisson:"),
            str(cell["num_requests"]),
            *(_figure(cell["figures"][name]) for name in TITLES),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join((head, "", *rows))


def _figure(found: Mapping[str, Any]) -> str:
    allowed = max(0.1, found["half_width"])
    off = f"{found['error']:.1%}"
    return f"{found['real']:,.4g}, {found['simulated']:,.4g}, {off if found['within'] else f'**{off}**'}, {allowed:.0%}"
