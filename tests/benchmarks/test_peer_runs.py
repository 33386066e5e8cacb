"""How a comparison survives what goes wrong: refused settings, a second run, foreign files, a failed setup, a kill."""

import json
import sys
import venv
from pathlib import Path
from typing import Any, Self

import pytest

from peers import __main__ as command
from peers import compare
from peers.cases import CASES, Settings
from peers.driver import DriverFailed
from peers.environments import SetupFailed, ensure_environment
from peers.lock import Held, only_run
from peers.places import HEADWAY, LLAMA_CPP, Cache
from peers.record import Record

FACTS: dict[str, Any] = {"machine": {"cpu": "C", "cores": 2}, "threads": 2, "models": {}}
DECODES = tuple(case for case in CASES if case.name in ("decode-1", "decode-1-int4"))
REPORT = {"prefill": {"tok_s": 1.0}, "decode": [{"batch": 1, "tok_s": 30.0}]}


class FakeDriver:
    """A peer that takes all settings, or none."""

    accepts = True
    started = 0
    description: dict[str, Any]

    def __init__(self, _cache: Cache, _peer: str, _model: Path, _threads: int, _settings: Settings) -> None:
        if not FakeDriver.accepts:
            raise DriverFailed("not that")
        FakeDriver.started += 1
        self.description = {"version": "1"}

    def measure(self, _command: dict[str, Any]) -> float:
        return 2.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> compare.Bench:
    monkeypatch.setattr(FakeDriver, "accepts", True)
    monkeypatch.setattr(FakeDriver, "started", 0)
    monkeypatch.setattr(compare, "Driver", FakeDriver)
    monkeypatch.setattr(compare, "run_perf", lambda *_: REPORT)
    models = {case.model: tmp_path / "m.gguf" for case in CASES}
    return compare.Bench(Cache(tmp_path), "headway", 2, (LLAMA_CPP,), models, {}, 1)


def test_a_case_whose_settings_are_all_refused_is_recorded_and_the_run_goes_on(
    bench: compare.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDriver, "accepts", False)
    record = Record(tmp_path / "r.json")
    command.compare(bench, DECODES, record, FACTS, fresh=False)
    found = Record(record.path).cases
    assert list(found) == ["decode-1", "decode-1-int4"]
    assert found["decode-1"]["error"] == "llama.cpp: every configuration was refused"
    assert found["decode-1"]["tried"][LLAMA_CPP][0]["tok_s"] == []
    assert record.sweeps == {}


def test_fresh_measures_again_with_settings_found_again_once(bench: compare.Bench, tmp_path: Path) -> None:
    record = Record(tmp_path / "r.json")
    command.compare(bench, DECODES, record, FACTS, fresh=False)
    first = FakeDriver.started
    command.compare(bench, DECODES, record, FACTS, fresh=False)
    assert FakeDriver.started == first  # on record
    command.compare(bench, DECODES, record, FACTS, fresh=True)
    assert FakeDriver.started == 2 * first  # one sweep for both cases, as before
    command.compare(bench, DECODES[1:], record, FACTS, fresh=True)
    assert FakeDriver.started == 3 * first - 1  # the sweep that the case uses, and the case


def test_fresh_keeps_what_is_not_yet_measured_again(
    bench: compare.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(tmp_path / "r.json")
    command.compare(bench, DECODES, record, FACTS, fresh=False)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "run_perf", killed)
    with pytest.raises(KeyboardInterrupt):
        command.compare(bench, DECODES, record, FACTS, fresh=True)
    assert HEADWAY in Record(record.path).cases["decode-1-int4"]["runs"]


def test_only_one_run_holds_the_lock(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with only_run(folder), pytest.raises(Held, match="another run is in progress"), only_run(folder):
        pass
    with only_run(folder):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"found": []}',
        '{"machine": {}, "threads": 2, "models": {}}',
        '{"machine": {}, "threads": 2, "cases": []}',
        '{"machine": {}, "threads": 2, "cases": {"a": {}}}',
    ],
)
def test_a_foreign_file_is_no_results_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"r\.json is not a results file: "):
        Record(path)


def test_results_that_were_published_can_be_read() -> None:
    for path in (Path(__file__).parents[2] / "bench" / "results").glob("*-peers.json"):
        assert Record(path).cases


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--peers llama,openvino", "no such peer: llama; there are llama.cpp, openvino"),
        ("--repeat 0", "whole number of at least 1"),
        ("--out broken.json", "broken.json is not a results file"),
        ("--out foreign.json", "take another --out"),
        ("render --out nofile.json", "nofile.json does not exist"),
        ("render --out empty.json", "empty.json holds no case yet"),
    ],
)
def test_what_cannot_be_done_is_told_before_the_setup(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def made(*_: object) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "ensure_environment", made)
    monkeypatch.setattr(sys, "argv", ["peers", "--cache", "cache", *arguments.split()])
    Path("broken.json").write_text("{")
    Path("empty.json").write_text(json.dumps(FACTS | {"sweeps": {}}))
    Path("foreign.json").write_text(json.dumps(FACTS | {"threads": 999, "cases": {}}))
    with pytest.raises(SystemExit) as ended:
        command.main()
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert message in said.strip().splitlines()[-1]


def test_a_second_run_ends_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers", "--cache", str(tmp_path), "--out", str(tmp_path / "r.json")])
    with only_run(tmp_path), pytest.raises(SystemExit, match="another run is in progress"):
        command.main()


def test_a_failed_setup_names_its_log_and_shows_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)

    def create(folder: Path, **_: object) -> None:
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho compiling\necho no compiler >&2\nexit 3\n")
        python.chmod(0o755)

    monkeypatch.setattr(venv, "create", create)
    with pytest.raises(
        SetupFailed, match=r"exit code 3.*venv-llama\.log ends with:\n  compiling\n  no compiler"
    ):
        ensure_environment(cache, LLAMA_CPP)
