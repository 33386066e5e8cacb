"""`headway simulate`, `simulate pareto` and `calibrate` in this process: what they tell, write and refuse."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.core.plan import LayerShape
from headway.lab.raw_file import read_raw
from headway.simulator.calibration import read_calibration
from support.tiny_gguf import write_tiny_gguf
from support.tiny_shapes import tiny_shape

LOAD = ("--arrival", "closed:2", "--requests", "6", "--output-tokens", "4")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["simulate", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["simulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    return err


def test_a_shape_on_a_device_is_simulated_and_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "shape:llama-3-8b", "--device", "H100", *LOAD)
    assert text.startswith(
        "Simulated, not measured: llama-3-8b on h100-sxm by its roofline (weights bf16, 0.6 of its operations"
    )
    assert "6 answered" in text
    found: dict[str, Any] = json.loads(
        told(capsys, "shape:llama-3-8b", "--device", "h100", "--replicas", "2", *LOAD, "--json")
    )
    assert found["endpoint"] == "simulated h100"
    assert found["ok"] == 6
    assert found["simulation"]["replicas"] == 2
    assert found["simulation"]["scheduler"]["max_draft_tokens"] == 0


def test_the_same_command_prints_the_same_twice(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("shape:qwen2.5-7b", "--device", "l4", "--arrival", "poisson:2", "--requests", "20", "--json")
    assert told(capsys, *command) == told(capsys, *command)


def test_what_is_assumed_of_a_device_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    def itl_ms(*options: str) -> float:
        found = json.loads(told(capsys, "shape:llama-3-8b", "--device", "a10", *LOAD, "--json", *options))
        return float(found["itl_ms"]["p50"])

    usual = itl_ms()
    assert itl_ms("--read-efficiency", "0.4") > 1.8 * usual
    assert itl_ms("--weights", "int8") < 0.6 * usual
    assert itl_ms("--launch-ms", "12") == pytest.approx(usual + 10, abs=0.01)


def test_records_are_kept_and_answers_can_be_as_long_as_in_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    raw = tmp_path / "run.parquet"
    command = ("shape:llama-3-8b", "--device", "a10", "--arrival", "closed:2", "--requests", "6")
    told(capsys, *command, "--output-tokens", "7", "--raw", str(raw))
    assert len(read_raw(raw).exchanges) == 6
    found = json.loads(told(capsys, *command, "--output-tokens", "100", "--answers", str(raw), "--json"))
    assert found["output_tokens"] == 6 * 7


def test_a_model_file_brings_its_own_tokenizer_and_shape(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    found = json.loads(told(capsys, str(path), "--device", "epyc-9354", *LOAD, "--json"))
    assert found["ok"] == 6


def test_pareto_tells_the_frontier_of_each_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "pareto.html"
    command = ("pareto", "shape:llama-3-8b", "--device", "a10,h100", "--users", "1,8", "--output-tokens", "8")
    found = json.loads(told(capsys, *command, "--chunks", "256", "--json", "--report", str(page)))
    assert list(found["devices"]) == ["a10", "h100"]
    assert [point["setting"]["num_users"] for point in found["devices"]["a10"]] == [1, 8]
    assert all(points[0]["frontier"] for points in found["devices"].values())
    fast, slow = (found["devices"][name][0]["e2e_p95_ms"] for name in ("h100", "a10"))
    assert fast < slow / 3
    assert "Simulated, not measured." in page.read_text()
    text = told(capsys, *command, "--chunks", "256")
    assert text.startswith("Simulated, not measured.\n")


def test_what_cannot_be_simulated_is_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "There is no device 'b200'" in refused(capsys, "shape:llama-3-8b", "--device", "b200")
    assert "There is no shape 'none'" in refused(capsys, "shape:none", "--device", "a10")
    assert "leaves no memory" in refused(capsys, "shape:qwen2.5-coder-14b", "--device", "a10")
    assert "cannot be read" in refused(
        capsys, "shape:llama-3-8b", "--calibration", str(tmp_path / "none.json")
    )


def test_extremes_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("shape:llama-3-8b", "--device", "a10", *LOAD)
    assert "from 0 to" in refused(capsys, *command, "--launch-ms", "1e18")
    assert "An efficiency is at least" in refused(capsys, *command, "--read-efficiency", "1e-30")


def test_one_machine_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "shape:llama-3-8b"])
    assert "one of the arguments --calibration --device is required" in capsys.readouterr().err


@pytest.mark.native
def test_a_shape_is_calibrated_and_then_simulated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = replace(
        tiny_shape(hidden_size=64, ffn_size=96, layers=(LayerShape(), LayerShape())), max_context=4096
    )
    monkeypatch.setattr("headway.runner.shapes.SHAPES", {"tiny": shape})
    path = tmp_path / "machine.json"
    assert main(["calibrate", "shape:tiny", "-o", str(path), "--budget", "1", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "steps that were not fitted" in out
    assert "Serving was not measured" in out
    found = read_calibration(path)
    assert found.runner.max_context == 4096
    assert found.settings["threads"] == 1
    assert not found.served
    text = told(capsys, "shape:tiny", "--calibration", str(path), *LOAD)
    assert text.startswith("Simulated, not measured: tiny on a machine calibrated for shape:tiny")
    command = ("shape:tiny", "--calibration", str(path), *LOAD)
    assert "--weights is of a device" in refused(capsys, *command, "--weights", "int8")
    assert "--launch-ms is of a device" in refused(capsys, *command, "--launch-ms", "1")
