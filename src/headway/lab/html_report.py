"""A run's result as one HTML file that fetches nothing: `headway bench --report`.

A new part of the report is a function from a result to a `Section`, or to None where it has nothing to say, and its name
in `SECTIONS`. Sections hold plain text; the template `report.html` escapes all of it, numbers go to the browser as JSON,
and the page forbids itself every script but its own two and every request (a Content-Security-Policy): a model that calls
itself `<script>` is shown, not run.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.core.errors import ConfigError
from headway.lab.atomic_file import check_writable, write_whole
from headway.lab.distribution_plots import itl_section, ttft_section
from headway.lab.ladder_plot import ladder_section
from headway.lab.load_plots import concurrency_section, prompt_section, rate_section
from headway.lab.measurement import RunResult
from headway.lab.report_section import Section
from headway.lab.report_streams import streams_section
from headway.lab.report_words import (
    failures_section,
    figures_section,
    overview_section,
    run_section,
    terms_section,
)
from headway.lab.waterfall import waterfall_section

SECTIONS: tuple[Callable[[RunResult], Section | None], ...] = (
    overview_section,
    figures_section,
    failures_section,
    streams_section,
    ladder_section,
    ttft_section,
    itl_section,
    rate_section,
    prompt_section,
    concurrency_section,
    waterfall_section,
    terms_section,
    run_section,
)
"""In the order of the page; the first is its head."""

_FOLDER = Path(__file__).parent


def check_report(path: str | Path) -> None:
    """Find out, before a run, whether its report can be made and written to `path`; raises ConfigError if not."""
    _plotly_js()
    check_writable(Path(path), "The report")


def write_report(result: RunResult, path: str | Path) -> None:
    """Write the report of a run as one HTML file, whole or not at all; raises ConfigError where it cannot be written."""
    write_whole(Path(path), as_html(result), "The report")


def as_html(result: RunResult) -> str:
    """Return the report of a run as a page of about 5 MB, nearly all of which is plotly.js."""
    return as_page([section for make in SECTIONS if (section := make(result)) is not None])


def as_page(found: Sequence[Section]) -> str:
    """Return sections as a page, the first as its head."""
    # Here, as a command that writes no report need not wait for it.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = template.from_string((_FOLDER / "report.html").read_text("utf-8"))
    plots = [section.plot for section in found[1:] if section.plot is not None]
    figures = [{"data": plot.traces, "layout": plot.layout} for plot in plots]
    return page.render(
        head=found[0],
        sections=found[1:],
        nonce=secrets.token_urlsafe(16),
        figures=Markup(script_json(figures)),
        plotly_js=Markup(_plotly_js()),
        report_js=Markup((_FOLDER / "report.js").read_text("utf-8")),
    )


def script_json(value: object) -> str:
    """Return JSON that can stand within `<script>`, which ends at `</script` wherever that is; raises ValueError for NaN."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError("A report needs plotly: `make lab`, or pip install 'headway[lab]'.") from None
    script: str = get_plotlyjs()
    return script
