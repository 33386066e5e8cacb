"""`headway bench` as a user runs it: against a server of ours, against nobody, and with Ctrl-C in the middle."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import headway.lab
from headway.cli.main import main
from support.real_server import RealServer

pytestmark = pytest.mark.native

FIGURE_KEYS = {"p50", "p90", "p95", "p99", "p99.9", "mean", "std", "n", "ci95"}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report: dict[str, Any] = json.loads(out)
    return report


def test_its_json_holds_what_was_asked_and_found(
    shared_server: RealServer, capsys: pytest.CaptureFixture[str]
) -> None:
    report = told(
        capsys,
        shared_server.url,
        *("--arrival", "closed:2", "--requests", "12", "--output-tokens", "4", "--seed", "3"),
        *("--slo", "ttft=60s,itl=60s"),
    )
    assert report["workload"] == "light"
    assert (report["arrival"], report["seed"], report["interrupted"]) == ("closed:2", 3, False)
    assert report["offered"] == report["ok"] + sum(report["errors"].values()) == 12
    assert report["goodput"] == report["ok"] / 12
    assert report["tokens_by"] == "usage"
    assert 0 < report["output_tokens"] <= 48
    for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "lag_ms"):
        assert report[name].keys() >= FIGURE_KEYS
    assert report["ttft_ms"]["p50"] <= report["e2e_ms"]["p50"]
    assert report["ttft_ms"]["p99"] is None  # of twelve
    assert report["ttft_ms"]["ci95"].keys() == {"p50", "p90", "p95", "p99", "p99.9", "mean"}
    assert report["prompt_lengths"] is None
    server = report["server"]
    assert (server["source"], server["requests"], server["restarted"]) == ("headway", 12, False)
    assert server["output_tokens"] >= report["output_tokens"]  # the token that ends an answer has no text
    assert server["ttft_ms"]["n"] == 12


def test_its_text_says_how_it_was_measured(
    shared_server: RealServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "bench",
        shared_server.url,
        "--requests",
        "6",
        "--output-tokens",
        "3",
        "--slo",
        "ttft=60s",
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "light, closed:1, 6 requests in" in out
    for name in ("TTFT", "ITL", "TPOT", "E2E", "client's lag", "goodput"):
        assert name in out
    assert "as the server sees it" in out
    assert "headway's own metrics counted 6 requests" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://127.0.0.1:1",), "No connection to 127.0.0.1:1"),
        (("ftp://x",), "not the URL of an endpoint"),
        (("http://127.0.0.1:1", "--model", "m", "--arrival", "often"), "--arrival"),
        (("http://127.0.0.1:1", "--model", "m", "--workload", "heavy"), "heavy"),
        (("http://127.0.0.1:1", "--model", "m", "--slo", "ttft=soon"), "ttft"),
        (("http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
        (
            ("http://127.0.0.1:1", "--report", "/nonexistent/r.html"),
            "cannot be written to /nonexistent/r.html",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    assert message in err


def test_nobody_who_answers_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "http://127.0.0.1:1", "--model", "m", "--requests", "3")
    assert (report["offered"], report["ok"], report["errors"]) == (3, 0, {"connection": 3})
    assert report["ttft_ms"]["with_failures"]["p50"] == "inf"


def test_its_raw_file_holds_what_it_printed(
    shared_server: RealServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.parquet"
    report = told(capsys, shared_server.url, *("--requests", "3", "--output-tokens", "4", "--raw", str(path)))
    run = headway.lab.read_raw(path)
    assert run.summary == report
    assert len(run.exchanges) == report["offered"] == 3
    assert run.asked["output_tokens"] == 4


def test_a_raw_file_that_cannot_be_is_refused_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, reason in ((tmp_path / "no" / "x", "No such file"), (tmp_path, "is no file")):
        assert main(["bench", "http://127.0.0.1:1", "--requests", "1", "--raw", str(path)]) == 2
        err = capsys.readouterr().err
        assert reason in err  # and not that nobody answers
        assert err.count("\n") == 1


def test_it_writes_a_report_beside_what_it_prints(
    shared_server: RealServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    report = told(capsys, shared_server.url, "--requests", "3", "--output-tokens", "2", "--report", str(path))
    page = path.read_text("utf-8")
    assert f"How long users wait for {report['model']}" in page
    assert shared_server.url.removeprefix("http://") in page


def test_ctrl_c_reports_what_was_over(shared_server: RealServer) -> None:
    command = [sys.executable, "-m", "headway.cli.main", "bench", shared_server.url, "--json"]
    command += ["--requests", "1000000", "--output-tokens", "1"]
    before = finished(shared_server)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while finished(shared_server) < before + 3:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    report = json.loads(out)
    assert report["interrupted"] is True
    assert report["offered"] >= 2


def finished(server: RealServer) -> float:
    page = httpx2.get(f"{server.url}/metrics").text
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith("headway_requests_total")
    )


def test_without_numpy_and_scipy_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['scipy'] = None; from headway.cli.main import main; sys.exit(main(['bench', 'http://x']))"
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert found.returncode == 2
    assert "make lab" in found.stderr
    assert found.stderr.count("\n") == 1
