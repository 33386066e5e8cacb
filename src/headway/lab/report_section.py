"""What a report is made of: sections with sentences, a table or a plot. Values only; `html_report.py` makes a page of them.

All text is plain text, wherever it comes from: the page escapes every bit of it, so nothing here is HTML.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one length; the first column names a row."""

    head: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure in the form of plotly.js: https://plotly.com/javascript/reference. Colours of text and grid are the page's.

    Plotly takes `<b>` and the like for markup: text from outside goes through `plots.plain`.
    """

    traces: tuple[Mapping[str, object], ...]
    layout: Mapping[str, object]
    height_px: int = 340


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report. `warnings` stand out; `text` is a paragraph each, told before the table and the plot."""

    heading: str
    warnings: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    table: Table | None = None
    plot: Plot | None = None
