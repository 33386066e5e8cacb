"""What `headway bench` tells of streams: a table, shares, refusals by code; in JSON without secrets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.bench_report import as_json, as_text
from headway.cli.main import main
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.run_options import RunOptions
from headway.lab.stream_table import with_streams
from support.lab_runs import answered, run_of
from support.scripted_stream import play


def refused(code: str) -> Exchange:
    return play((1, json.dumps({"error": {"message": "later", "code": code}}).encode()), status=503)


def options() -> RunOptions:
    endpoint = Endpoint(host="h", port=1, path="/v1", headers=(("x-key", "secret"),))
    return with_streams(
        RunOptions(endpoint=endpoint),
        [{"name": "chat", "class": "high", "tenant": "t1"}, {"name": "scan", "arrival": "poisson:4"}],
    )


def backlogged(name: str, prompt_tokens: int) -> list[Exchange]:
    return [
        replace(
            answered(0, ttft_ms=200 * (index + 1), prompt_tokens=prompt_tokens, conversation=index),
            stream=name,
        )
        for index in range(30)
    ]


def test_each_stream_has_a_row_and_shares_are_told() -> None:
    run = [
        *backlogged("chat", 95),
        *backlogged("scan", 295),
        *(replace(refused("queue_full"), stream="scan") for _ in range(2)),
    ]
    found = run_of(options(), run)
    text = as_text(found)
    assert "2 streams, together, 62 requests" in text
    assert "2 failed: refused_503 (2 queue_full)" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("chat", "scan"))}
    assert rows["chat"][1:4] == ["30", "30", "30"]
    assert rows["scan"][1:4] == ["32", "30", "30"]
    assert "(5 s windows: 1): shares of tokens chat 25.0%, scan 75.0%; Jain's index of service 0.8" in text
    told = as_json(found)
    assert [part["stream"] for part in told["by_stream"]] == ["chat", "scan"]  # type: ignore[attr-defined]
    assert told["by_stream"][1]["refusals"] == [{"status": 503, "code": "queue_full", "n": 2}]  # type: ignore[index]
    assert told["between_streams"]["token_shares"] == {"chat": 0.25, "scan": 0.75}  # type: ignore[index]
    assert (told["admitted"], told["refused"]) == (60, 2)


def test_what_was_asked_is_told_without_secrets() -> None:
    told = as_json(run_of(options(), [replace(answered(), stream="chat")]))
    assert "secret" not in json.dumps(told)
    assert told["headers"] == {"x-key": None}
    asked: Any = told["streams"]
    chat, scan = asked
    assert chat["headers"] == {"x-key": None, "x-headway-class": "high", "x-headway-tenant": "t1"}
    assert (scan["stream"], scan["workload"], scan["arrival"]) == ("scan", "light", "poisson:4")


def test_streams_that_never_all_waited_say_so() -> None:
    run = [replace(answered(), stream=name) for name in ("chat", "scan")]
    assert "never backlogged together" in as_text(run_of(options(), run))


def test_a_run_of_one_load_has_no_streams() -> None:
    told = as_json(run_of(RunOptions(endpoint=Endpoint(host="h", port=1, path="/v1")), [answered()]))
    assert (told["streams"], told["by_stream"], told["between_streams"], told["headers"]) == (
        [],
        [],
        None,
        {},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--header", "x-key secret"), "'name: value'"),
        (("--header", "x key: secret"), "no name"),
        (("--streams", "/nonexistent/s.toml"), "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "http://127.0.0.1:1", "--model", "m", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
    assert "secret" not in err


def test_a_file_of_streams_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[[stream]]\nname = "a"\nrequests = 2\n[[stream]]\nname = "b"\nrequests = 1\n')
    assert main(["bench", "http://127.0.0.1:1", "--model", "m", "--streams", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["workload"], told["offered"]) == ("2 streams", 3)
    assert [(part["stream"], part["offered"], part["admitted"]) for part in told["by_stream"]] == [
        ("a", 2, 0),
        ("b", 1, 0),
    ]
