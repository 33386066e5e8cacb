"""The report in a real browser, without a network: every plot draws, and nothing of what it was told runs."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headway.lab.html_report import write_report
from support.lab_runs import answered, failed, result_of, usual_run

CHROMIUM = shutil.which("chromium")
HOSTILE = "m</script><script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (on Debian: apt install chromium)")


class Drawn(HTMLParser):
    """Per plot, how many groups of a class plotly drew; and the text of the title and of plots that broke."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.plots: dict[str, list[str]] = {}
        self.title = ""
        self.broken = 0
        self._plot: list[str] = []
        self._in_title = False
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        classes = (found.get("class") or "").split()
        if "plot" in classes:
            self._plot = self.plots[str(found["id"])] = []
            self.broken += "broken" in classes
        if tag == "section":
            self._plot = []
        self._plot += classes
        self._in_title = tag == "title" and not self.title

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"

    def handle_data(self, data: str) -> None:
        self.title += data if self._in_title else ""


def opened(path: Path, profile: Path, *options: str) -> tuple[Drawn, list[str]]:
    """Return the page as it is once its scripts have run, and what they wrote to the console."""
    command = [
        str(CHROMIUM),
        "--headless",
        *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
        *("--enable-logging=stderr", "--window-size=1000,4000", "--virtual-time-budget=20000"),
        f"--user-data-dir={profile}",
        *options,
        "--dump-dom",
        path.as_uri(),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return Drawn(found.stdout), re.findall(r".*CONSOLE.*", found.stderr)


def test_every_plot_draws(tmp_path: Path) -> None:
    write_report(usual_run(), tmp_path / "report.html")
    drawn, console = opened(tmp_path / "report.html", tmp_path / "profile")
    assert console == []
    assert drawn.broken == 0
    assert len(drawn.plots) == 6
    for name, classes in drawn.plots.items():
        assert classes.count("main-svg") >= 1, name
        assert classes.count("trace") >= 1, name
    assert drawn.plots["plot-5"].count("point") >= 100  # bars of the waterfall: two or more a request
    assert drawn.plots["plot-3"].count("point") == 58  # a dot for each prompt that was answered


def test_a_model_s_name_does_not_run(tmp_path: Path) -> None:
    run = [*(answered(10.0 * n, label=HOSTILE) for n in range(20)), failed(message=HOSTILE)]
    write_report(result_of(run, model=HOSTILE), tmp_path / "report.html")
    drawn, console = opened(tmp_path / "report.html", tmp_path / "profile")
    assert console == []
    assert drawn.title == f"How long users wait for {HOSTILE}"


def test_a_script_that_got_in_would_not_run(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(usual_run(), path)
    path.write_text(path.read_text("utf-8").replace("</h1>", f"</h1>{HOSTILE}"), "utf-8")
    drawn, console = opened(path, tmp_path / "profile")
    assert drawn.title == "How long users wait for m"
    assert len(console) >= 2
    assert all("Content Security Policy" in line for line in console)
