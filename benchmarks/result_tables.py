"""Writes what `kv_layouts.py` and `edits.py` have left in benchmarks/results into docs/performance.md.

    .venv/bin/python benchmarks/result_tables.py

It measures nothing. The document's test renders the same and compares, so that no figure there is older than its raw data.
"""

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers.places import DOCUMENT
from peers.render import replace_table

RESULTS = Path(__file__).parent / "results"
KV_LAYOUTS = ("kv_layouts", "kv_layouts_llama")
EDITS = ("edits", "edits_llama", "edits_nothing_right")


def kv_layouts_table() -> str:
    """Return Markdown: a row for each model and layout."""
    return "\n".join(_kv_layouts())


def speculation_table() -> str:
    """Return Markdown: a row for each run of `edits.py`."""
    return "\n".join(_speculation())


def _kv_layouts() -> Iterator[str]:
    yield "| | block size | tokens/s | KV read, GB/s | sequences at once | held and empty | of what is held |"
    yield "|---" * 7 + "|"
    for data in map(_result, KV_LAYOUTS):
        model = data["settings"]["model"].removeprefix("shape:")
        for name, layout in data["layouts"].items():
            median = {figure: layout[figure]["median"] for figure in layout if figure != "block_size"}
            cells = (
                f"{model}, {name}",
                f"{layout['block_size']:,}",
                f"{median['tok_s']:,.0f}",
                f"{median['kv_read_gb_s']:.2f}",
                f"{median['sequences']:.1f}",
                f"{median['wasted_bytes'] / 1e6:,.1f} MB",
                f"{median['wasted_share']:.0%}",
            )
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "; ".join(
        f"{data['settings']['model'].removeprefix('shape:')}: {data['settings']['sequences']} requests, "
        f"{data['settings']['kv_tokens']:,} tokens of memory, medians of {data['settings']['repeat']}, "
        f"answers {'the same' if data['same_tokens'] else 'NOT the same'} in all layouts"
        for data in map(_result, KV_LAYOUTS)
    )


def _speculation() -> Iterator[str]:
    yield (
        "| | speedup, median (smallest, quartiles, largest) | tokens/s without → with "
        "| tokens a step | drafts right | rows a step |"
    )
    yield "|---" * 6 + "|"
    for data in map(_result, EDITS):
        settings, medians = data["settings"], data["medians"]
        kind = "tokens that no draft guesses" if settings["nothing_right"] else "edits"
        spread = "{smallest:.2f}, {lower:.2f} to {upper:.2f}, {largest:.2f}".format(
            **data["speedup_quartiles"]
        )
        rates = " → ".join(f"{_median_rate(data, side):,.0f}" for side in ("without", "with"))
        cells = (
            f"{settings['model'].removeprefix('shape:')}, {len(data['found'])} {kind}",
            f"{medians['speedup']:.2f} ({spread})",
            rates,
            f"{medians['tokens_per_step']:.1f}",
            f"{medians['acceptance']:.0%}",
            f"{medians['rows_per_step']:.1f}",
        )
        yield "| " + " | ".join(cells) + " |"


def _median_rate(data: Mapping[str, Any], side: str) -> float:
    return float(statistics.median(one["tok_s"][side] for one in data["found"]))


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def main() -> None:
    for name, table in (("kv-layouts", kv_layouts_table()), ("speculation", speculation_table())):
        replace_table(DOCUMENT, table, f"<!-- {name}: begin -->", f"<!-- {name}: end -->")


if __name__ == "__main__":
    main()
