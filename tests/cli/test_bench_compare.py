"""`headway bench compare` as a user runs it: two servers on a schedule, a server of ours twice, Ctrl-C in the middle."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import headway.lab
from headway.cli.main import main
from headway.core.errors import ConfigError
from headway.lab.rounds import Round
from support.real_server import RealServer, eventually

pytestmark = pytest.mark.native


@contextmanager
def null_server(itl_ms: float) -> Iterator[str]:
    """A server that writes four tokens, and its URL."""
    command = [sys.executable, "-m", "headway.lab.null_server", "--ttft-ms", "3", "--tokens", "4"]
    command += ["--itl-ms", str(itl_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())},model=m"
        server.stdin.close()


def test_a_slower_side_is_found_and_every_run_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    with null_server(1) as fast, null_server(30) as slow:
        code = main(
            ["bench", "compare", fast, slow, "--requests", "2", "--seed", "4", "--json", "--raw", str(folder)]
        )
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["figures"]["itl_mean"]["judgement"] == "slower"
    assert told["figures"]["itl_mean"]["ratio"] > 3
    assert "slower than A in" in told["verdict"]["sentence"]
    assert (told["interrupted"], told["a"]["model"], told["requests"]) == (False, "m", 2)
    assert [each["a"]["seed"] for each in told["rounds"]] == [5, 6, 7, 8, 9]
    assert {each["order"] for each in told["rounds"]} == {"AB", "BA"}
    assert json.loads((folder / "comparison.json").read_text()) == told
    rows = ds.dataset(folder, format="parquet", partitioning="hive", exclude_invalid_files=True).to_table()
    assert len(rows) == 20
    assert {(row["side"], row["round"]) for row in rows.select(["side", "round"]).to_pylist()} == {
        (side, number) for side in "AB" for number in range(1, 6)
    }
    run = headway.lab.read_raw(folder / "side=B" / "round=3" / "run.parquet")
    assert run.asked["seed"] == 7
    assert run.started_at.isoformat() == told["rounds"][2]["b"]["started_at"]


def test_one_server_twice_is_said_to_be_one(
    shared_server: RealServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--requests", "2", "--output-tokens", "2", "--slo", "ttft=60s"]
    assert main(["bench", "compare", shared_server.url, shared_server.url, *arguments]) == 0
    out = capsys.readouterr().out
    assert "Both sides are the same model of one endpoint" in out
    assert "light, closed:1, 5 rounds of 2 requests of each" in out
    assert "goodput: A 100.0%, B 100.0%" in out
    for figure in ("TTFT p50", "TTFT p95", "E2E p50"):
        assert figure in out


def test_from_python_the_verdict_comes_with_every_run(shared_server: RealServer) -> None:
    seen: list[Round] = []
    found, done = headway.lab.compare(
        shared_server.url, shared_server.url, requests=1, output_tokens=1, on_round=seen.append
    )
    assert found.judgement in ("faster", "slower", "mixed", "equal", "unknown")
    assert list(done.rounds) == seen
    for wrong in ({"rounds": 4}, {"least_effect": 1.0}, {"requests": 0}):
        with pytest.raises(ConfigError):
            headway.lab.compare("http://x", "http://x", **wrong)


def test_ctrl_c_says_what_is_missing(shared_server: RealServer) -> None:
    command = [
        sys.executable,
        "-m",
        "headway.cli.main",
        "bench",
        "compare",
        shared_server.url,
        shared_server.url,
    ]
    command += ["--json", "--requests", "1000000", "--output-tokens", "1"]

    def num_finished() -> float:
        return sum(
            value
            for name, value in shared_server.metrics().items()
            if name.startswith("headway_requests_total")
        )

    before = num_finished()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert eventually(lambda: num_finished() >= before + 10)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    told = json.loads(out)
    assert told["interrupted"] is True
    assert told["verdict"] == {
        "judgement": None,
        "sentence": "0 of 5 rounds are complete; a verdict takes 5 more.",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://x,best", "http://x"), "not with 'best'"),
        (("http://x", "http://x,api-key-env=NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
        (("http://127.0.0.1:1", "http://127.0.0.1:1"), "No connection to 127.0.0.1:1"),
        (
            ("http://127.0.0.1:1,model=m", "http://127.0.0.1:1"),
            "answered nothing while it was warmed up: connection.",
        ),
        (("http://127.0.0.1:1,model=m", "http://x", "--raw", "."), "is not empty"),
        (("http://127.0.0.1:1,model=m", "http://x", "--raw", "no/such"), "No such file"),
        (("http://127.0.0.1:1,model=m", "http://x", "--workload", "heavy"), "heavy"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    assert message in err


def test_too_few_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "compare", "a", "b", "--rounds", "4"])
    assert "at least 5 are needed" in capsys.readouterr().err
