"""The machine's limits: that they are measured, and which peak counts, the measured one or the one on record."""

from dataclasses import asdict
from pathlib import Path

import pytest

from headway import _native
from headway.runner.machine_limits import (
    BF16_DOTS_ISA,
    LimitMeter,
    Limits,
    processor_model,
    raise_record,
    read_record,
    with_record,
)

MEASURED = Limits(read_gb_s=30.0, int8_gops=800.0, bf16_gflops=400.0, f32_gflops=200.0)


@pytest.mark.native
@pytest.mark.parametrize("isa", _native.available_isas())
def test_every_limit_is_measured(isa: str) -> None:
    meter = LimitMeter(isa=isa, threads=2, num_bytes=3 << 20)
    meter.run(0.001)
    meter.run(0.001)
    assert {name: len(runs) for name, runs in asdict(meter.runs).items()} == dict.fromkeys(
        ("read_gb_s", "int8_gops", "bf16_gflops", "f32_gflops"), 2
    )
    best = meter.runs.best()
    assert best.read_gb_s == max(meter.runs.read_gb_s) > 0
    assert best.int8_gops > 0
    assert best.bf16_gflops > 0
    assert best.f32_gflops > 0
    assert (best.f32_gflops == best.bf16_gflops) == (isa != BF16_DOTS_ISA)


@pytest.mark.native
@pytest.mark.parametrize(
    ("isa", "threads", "num_bytes"), [("mmx", 1, 1), ("auto", 0, 1), ("auto", 1, 0), ("auto", 1, 1 << 60)]
)
def test_what_cannot_be_measured_is_refused(isa: str, threads: int, num_bytes: int) -> None:
    with pytest.raises(ValueError, match=r"isa|Instruction|threads|num_bytes"):
        _native.MachineLimits(isa=isa, threads=threads, num_bytes=num_bytes)


def test_without_a_record_what_was_measured_counts() -> None:
    assert with_record(MEASURED, {}) == MEASURED


def test_a_peak_below_95_percent_of_the_record_is_replaced_by_it() -> None:
    judged = with_record(
        MEASURED, {"int8_gops": 800.0 / 0.94, "bf16_gflops": 400.0 / 0.96, "f32_gflops": 250.0}
    )
    assert judged.int8_gops == 800.0 / 0.94
    assert judged.int8_gops_source == "record"
    assert (judged.bf16_gflops, judged.bf16_gflops_source) == (400.0, "measured")
    assert (judged.f32_gflops, judged.f32_gflops_source) == (250.0, "record")
    assert judged.read_gb_s == 30.0


def test_a_record_only_rises_and_keys_do_not_touch_each_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "peaks.json"
    raise_record(path, "a", MEASURED)
    raise_record(path, "b", Limits(read_gb_s=1.0, int8_gops=1.0, bf16_gflops=1.0, f32_gflops=1.0))
    raise_record(path, "a", Limits(read_gb_s=1.0, int8_gops=900.0, bf16_gflops=300.0, f32_gflops=1.0))
    assert read_record(path, "a") == {"int8_gops": 900.0, "bf16_gflops": 400.0, "f32_gflops": 200.0}
    assert read_record(path, "b") == {"int8_gops": 1.0, "bf16_gflops": 1.0, "f32_gflops": 1.0}
    assert read_record(path, "c") == {}
    assert [entry.name for entry in path.parent.iterdir()] == ["peaks.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"a": {"int8_gops": "fast"}}', '{"a": {"x": 1e999}}']
)
def test_a_file_that_is_no_record_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "peaks.json"
    path.write_text(text)
    assert read_record(path, "a") == {}
    raise_record(path, "a", MEASURED)
    assert read_record(path, "a") == {"int8_gops": 800.0, "bf16_gflops": 400.0, "f32_gflops": 200.0}


def test_a_record_that_cannot_be_written_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    raise_record(tmp_path / "file" / "peaks.json", "a", MEASURED)


def test_a_processor_is_named_with_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(
        "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\nprocessor\t: 1\n"
    )
    assert processor_model(path) == "AMD EPYC 25/17/1"
    assert processor_model(tmp_path / "none")
