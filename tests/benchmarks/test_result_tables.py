"""docs/performance.md shows what the raw data says: figures and files are renewed together."""

import json
from collections.abc import Callable

import pytest

import format_report
import result_tables
from peers.places import DOCUMENT, RESULTS, ROOT
from peers.render import render


def shown(name: str) -> str:
    text = DOCUMENT.read_text()
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
