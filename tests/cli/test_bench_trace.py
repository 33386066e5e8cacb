"""`headway bench trace FILE`, and what `headway bench` says of the trace that it replays."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main

DATA = Path(__file__).parent.parent / "lab" / "data"


def described(capsys: pytest.CaptureFixture[str], name: str, *options: str) -> dict[str, Any]:
    assert main(["bench", "trace", str(DATA / name), *options, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def text(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    assert main(["bench", "trace", str(path)]) == 0
    return capsys.readouterr().out


def test_its_json_describes_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    report = described(capsys, "mooncake.jsonl")
    assert (report["format"], report["rows"], report["bad"], report["distinct_times"]) == (
        "mooncake",
        8,
        2,
        4,
    )
    assert [bad["line"] for bad in report["bad_rows"]] == [5, 8]
    assert report["arrivals"]["by_hour"] is None
    assert report["arrivals"]["peak_second"] == {"requests": 3, "at_s": 3.052}
    assert report["input_tokens"]["n"] == report["output_tokens"]["n"] == 8
    assert 0 < report["shared_prefix"] < 1
    assert report["access"] is None


def test_its_json_has_all_that_an_access_log_tells(capsys: pytest.CaptureFixture[str]) -> None:
    report = described(capsys, "access_timed.log")
    assert report["tokens_inferred"] is True
    assert report["starts_at"] == "2024-05-10T13:59:59.750000+00:00"
    assert sum(report["arrivals"]["by_hour"]) == 5
    access = report["access"]
    assert access["routes"][0] == {
        "method": "POST",
        "path": "/v1/chat/completions",
        "requests": 4,
        "weight": 0.8,
        "failed": 1,
        "timed": 3,
        "p95_ms": 2500,
    }
    assert access["methods"] == {"POST": 0.8, "GET": 0.2}
    assert access.keys() == {"routes", "methods", "clients", "referers", "protocols"}


def test_bytes_per_token_may_differ_for_prompts_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    told = {
        option: described(capsys, "access_timed.log", "--bytes-per-token", option)
        for option in ("4", "4:200")
    }
    assert [each["input_tokens"]["p50"] for each in told.values()] == [500, 500]
    assert [each["output_tokens"]["p95"] for each in told.values()] == [450, 9]


def test_its_text_names_bad_rows_and_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    out = text(capsys, DATA / "mooncake.jsonl")
    assert "mooncake, 8 requests in 9.05 s" in out
    assert "rows that cannot be read: 2" in out
    assert "line 8: 1200 tokens are 3 blocks of 512" in out
    assert "7 of 8 requests share their time with another (4 times): a replay needs --spread-times" in out
    assert "of the prompts' tokens lie in blocks that an earlier request had" in out


def test_its_text_shows_an_access_logs_routes_and_hours(capsys: pytest.CaptureFixture[str]) -> None:
    out = text(capsys, DATA / "access_timed.log")
    assert "tokens (inferred)" in out
    assert "POST /v1/chat/completions  80.0%" in out
    assert "the log's zone; most at 14 h: 4" in out
    assert "clients   ide 80.0%, probe 20.0%" in out


def test_a_long_log_is_cut_short_and_nothing_of_it_reaches_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "".join(
            f"192.0.2.1 - - [10/May/2024:14:00:{number:02} +0000] "
            f'"GET /page-{number}\x1b[2J HTTP/1.1" 200 8 "-" "c{number}"\n'
            for number in range(30)
        )
        + "broken\n" * 7
    )
    out = text(capsys, log)
    assert "\x1b" not in out
    assert "… and 15 routes more" in out
    assert ", 25 more" in out
    assert out.count("line 3") == 5  # lines 31 to 35 of 37


def test_requests_of_one_time_have_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("Timestamp,Request tokens,Response tokens\n5,1,1\n5,1,1\n")
    assert "all requests came at one time" in text(capsys, trace)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace", "/nonexistent"), "cannot be read"),
        (("trace", str(DATA / "azure_2023.csv"), "--bytes-per-token", "4"), "access logs alone"),
        (("http://127.0.0.1:1", "--model", "m", "--lines", "5"), "no use"),
        (("http://127.0.0.1:1", "--model", "m", "--trace-speed", "2"), "for traces alone"),
        (("http://127.0.0.1:1", "--model", "m", "--spread-times"), "for traces alone"),
        (("http://127.0.0.1:1", "--model", "m", "--bytes-per-token", "4"), "for traces alone"),
    ],
)
def test_what_has_no_use_is_refused_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


@pytest.mark.parametrize(
    "option",
    [
        ("--bytes-per-token", "4:"),
        ("--bytes-per-token", "0"),
        ("--trace-speed", "-1"),
        ("--spread-times", "x"),
    ],
)
def test_what_is_no_number_is_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "http://127.0.0.1:1", *option])
    assert option[0] in capsys.readouterr().err


def test_a_replay_tells_how_its_trace_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    replay = ["bench", "http://127.0.0.1:1", "--model", "m", "--workload", f"trace:{DATA / 'mooncake.jsonl'}"]
    replay += ["--trace-speed", "1000"]
    assert main(replay) == 0
    out = capsys.readouterr().out
    assert "rows that cannot be read: 2" in out
    assert "7 of 8 requests share their time with another (4 times) and came in bursts that never were" in out
    assert main([*replay, "--spread-times"]) == 0
    assert "share their time" not in capsys.readouterr().out
    assert main([*replay, "--spread-times", "0.5", "--json"]) == 0
    trace = json.loads(capsys.readouterr().out)["trace"]
    assert (trace["rows"], trace["bad"], trace["speed"], trace["spread_s"]) == (8, 2, 1000, 0.5)
