"""A report's page: it fetches nothing, believes no text from outside, and says in words what was found."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import headway.lab
from headway.core.errors import ConfigError
from headway.lab.html_report import SECTIONS, as_html, check_report, script_json
from headway.lab.measurement import LAG_LIMIT_NS, RunResult
from headway.lab.report_words import figures_section, overview_section
from headway.lab.run_options import RunOptions
from headway.lab.slo import Slo
from support.lab_runs import answered, failed, result_of, usual_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&%{x}"


class Page(HTMLParser):
    """What a browser would find: elements with their attributes, the text of the page, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = "" if tag == self._in else self._in

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data


def hostile_run() -> RunResult:
    run = [*(answered(10.0 * n, label=HOSTILE) for n in range(20)), failed(message=HOSTILE)]
    options = RunOptions(endpoint=usual_run().options.endpoint, workload=HOSTILE)
    return result_of(run, model=HOSTILE, arrival=HOSTILE, options=options)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(as_html(usual_run()))


def test_the_page_fetches_nothing(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "a"}
        assert not attributes.keys() & {"src", "href", "srcset", "action"}
    [policy] = [
        found["content"] for _, found in page.elements if found.get("http-equiv") == "Content-Security-Policy"
    ]
    assert str(policy).startswith("default-src 'none'; script-src 'nonce-")


def test_style_and_script_of_ours_name_no_address() -> None:
    folder = Path(headway.lab.__file__).parent
    for name in ("report.html", "report.js"):
        assert not re.search(r"://|url\(|@import|fetch\(|import\(", (folder / name).read_text())


def test_every_plot_has_its_place_and_plotly_is_there_once(page: Page) -> None:
    figures, plotly_js, report_js = page.scripts
    places = [found["id"] for _, found in page.elements if found.get("class") == "plot"]
    assert places == [f"plot-{number}" for number in range(6)]
    assert len(json.loads(figures)) == 6
    assert len(plotly_js) > 1_000_000
    assert "Plotly.newPlot" in report_js


def test_text_from_outside_is_text() -> None:
    text = as_html(hostile_run())
    hostile, usual = Page(text), Page(as_html(usual_run()))
    assert [tag for tag, _ in hostile.elements if tag == "script"] == ["script"] * 3
    assert {tag for tag, _ in hostile.elements} == {tag for tag, _ in usual.elements}
    assert all(not name.startswith("on") for _, found in hostile.elements for name in found)
    assert hostile.text.count(HOSTILE) >= 5  # title, heading, workload, arrival, message
    figures = hostile.scripts[0]
    assert "<" not in figures
    assert "&lt;/script&gt;" in str(json.loads(figures)[-1]["data"])


def test_a_script_s_json_ends_no_script_and_reads_as_before() -> None:
    value = ["</script>", "<!--", "&", "\u2028"]
    assert not set("<>&\u2028") & set(script_json(value))
    assert json.loads(script_json(value)) == value
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_a_long_run_makes_no_long_page() -> None:
    few = len(as_html(result_of([answered(10 * n, num_tokens=2) for n in range(300)])))
    many = len(as_html(result_of([answered(10 * n, num_tokens=2) for n in range(6_000)])))
    assert many < few + 1_000_000


def test_the_page_is_told_in_plain_words() -> None:
    run = [answered(100.0 * n, ttft_ms=10 + 10 * n) for n in range(20)]
    section = overview_section(result_of([*run, failed(), failed()]))
    told = " ".join(section.text)
    assert "22 requests in 2.1 seconds were sent to 127.0.0.1:8000: short questions" in told
    assert (
        "Of the users who were answered, half saw their answer begin within 0.1 seconds, 95 % within 0.19"
        in told
    )
    assert "2 of 22 requests failed (2 error_event)." in told
    assert "The measuring program kept up" in told
    assert section.warnings == ()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (result_of([answered()]), "Half of the users saw their answer begin within 0.05 seconds"),
        (result_of([answered()]), "100 tokens (words, or parts of words) a second"),
        (result_of([answered()]), "No request failed."),
        (result_of([answered()], arrival="closed:1"), "one after another"),
        (result_of([answered()], arrival="closed:4"), "by 4 users at a time"),
        (result_of([answered()], slo=Slo(ttft_ns=1)), "0.0% of all requests met the limits"),
        (result_of([failed()]), "1 of 1 requests failed"),
        (result_of([]), "0 requests in 0 seconds"),
    ],
)
def test_what_was_found_decides_the_words(result: RunResult, said: str) -> None:
    assert said in " ".join(overview_section(result).text)


def test_what_is_not_to_be_believed_stands_out() -> None:
    late = result_of([answered()], lag_p99_ns=LAG_LIMIT_NS + 1.0, interrupted=True)
    section = overview_section(late)
    assert [warning.split()[0] for warning in section.warnings] == ["Do", "The"]
    assert "kept up" not in " ".join(section.text)
    found = Page(as_html(late))
    assert (
        len([1 for _, attributes in found.elements if attributes.get("class") == "warning"]) == 3
    )  # noscript's


def test_failures_count_as_endless_in_a_row_of_their_own() -> None:
    table = figures_section(result_of([answered(), failed(), failed()])).table
    assert table is not None
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["TTFT"][:2] == ("50", "50")
    assert rows["TTFT, a failure as endless"][0].startswith("∞")
    assert {len(row) for row in table.rows} == {len(table.head)}


@pytest.mark.parametrize("run", [[], [failed()], [answered(num_tokens=1)]])
def test_a_run_that_found_little_has_a_page(run: list[object]) -> None:
    found = Page(as_html(result_of(run, start_ns=None)))  # type: ignore[arg-type]
    assert "How long users wait for m" in found.text


def test_sections_stand_in_their_order(page: Page) -> None:
    headings = [section.heading for make in SECTIONS if (section := make(usual_run())) is not None]
    places = [page.text.rindex(heading) for heading in headings]
    assert places == sorted(places)
    assert len(headings) == len(SECTIONS) - 2  # there was no ladder, and one load


def test_a_program_writes_a_report(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    check_report(path)
    headway.lab.write_report(usual_run(), str(path))
    assert path.read_text("utf-8").endswith("</html>")


def test_without_plotly_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError, match="make lab"):
        check_report(tmp_path / "report.html")
