"""docs/performance.md shows what the raw data says: figures and files are renewed together."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import format_report
import result_tables
import simulator_table
from endpoints import public_tool
from endpoints.render import render as render_endpoints
from flow_control.render import render as render_flow
from gateway_overhead.render import render as render_gateway
from peers.places import DOCUMENT, RESULTS, ROOT
from peers.render import render
from prompts.render import render as render_prompts
from scheduling.render import render as render_scheduling


def shown(name: str, document: Path = DOCUMENT) -> str:
    text = document.read_text()
    return text.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0].strip()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("kv-layouts", result_tables.kv_layouts_table),
        ("speculation", result_tables.speculation_table),
    ],
)
def test_tables_show_the_raw_data(name: str, table: Callable[[], str]) -> None:
    assert shown(name) == table().strip()


def test_the_table_of_formats_shows_the_raw_data() -> None:
    path = ROOT / "benchmarks" / "results" / "formats.json"
    data = json.loads(path.read_text())
    assert shown("formats") == format_report.render(data, str(path.relative_to(ROOT))).strip()


def test_the_comparison_with_others_shows_the_newest_raw_data() -> None:
    path = max(RESULTS.glob("*-peers.json"))
    assert shown("peers") == render(json.loads(path.read_text()), str(path.relative_to(ROOT))).strip()


@pytest.mark.parametrize(
    ("name", "document", "table"),
    [
        ("endpoints", DOCUMENT, render_endpoints),
        ("scheduling", DOCUMENT, render_scheduling),
        ("scheduling-classes", DOCUMENT, render_scheduling),
        ("flow", DOCUMENT, render_flow),
        ("gateway", DOCUMENT, render_gateway),
        ("prompts", DOCUMENT, render_prompts),
        ("simulator", simulator_table.DOCUMENT, simulator_table.render),
        ("public-tool", public_tool.DOCUMENT, public_tool.render),
    ],
)
def test_what_was_measured_of_servers_shows_the_newest_raw_data(
    name: str, document: Path, table: Callable[[Mapping[str, Any], str], str]
) -> None:
    paths = sorted(RESULTS.glob(f"*-{name}.json"))
    expected = table(json.loads(paths[-1].read_text()), str(paths[-1].relative_to(ROOT))) if paths else ""
    assert shown(name, document) == expected.strip()
