"""`headway perf` in this process: what it tells, in which words, and what it refuses before it writes anything."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway._native import available_isas
from headway.cli.main import build_parser, main
from headway.core.plan import LayerShape
from headway.runner.machine_limits import record_key
from support.tiny_gguf import write_tiny_gguf
from support.tiny_shapes import tiny_shape

pytestmark = pytest.mark.native

SHAPE = tiny_shape(hidden_size=64, ffn_size=96, layers=(LayerShape(), LayerShape(window=20)))
SMALL = ("--prompt-tokens", "24", "--output-tokens", "2", "--threads", "2")


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("headway.cli.perf_run.READ_BYTES", 1 << 20)
    monkeypatch.setattr("headway.runner.shapes.SHAPES", {"tiny": SHAPE})


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["perf", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report: dict[str, Any] = json.loads(out)
    return report


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["perf", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway: ")
    assert err.count("\n") == 1
    return err


def test_its_json_holds_medians_limits_shares_and_every_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = told(
        capsys,
        "shape:tiny",
        *SMALL,
        "--weights",
        "int8",
        "--batch",
        "1,3",
        "--repeat",
        "2",
        "--context",
        "40",
    )
    assert list(report) == ["prefill", "decode", "limits", "efficiency", "settings", "model", "runs"]
    assert report["prefill"]["tokens"] == 24
    assert report["prefill"]["tok_s"] > 0
    assert [row["batch"] for row in report["decode"]] == [1, 3]
    for row in report["decode"]:
        assert row["tok_s"] == pytest.approx(row["batch"] * 1000 / row["ms_per_step"], rel=1e-3)
    assert min(report["limits"][name] for name in ("read_gb_s", "int8_gops", "bf16_gflops", "f32_gflops")) > 0
    assert report["limits"]["int8_gops_source"] == "measured"
    assert report["efficiency"]["prefill_of"] == "int8_gops"
    assert min(report["efficiency"][name] for name in ("prefill", "decode")) > 0
    assert report["settings"] == {
        "prompt_tokens": 24,
        "chunk_tokens": 24,
        "output_tokens": 2,
        "context": 40,
        "batch": [1, 3],
        "repeat": 2,
        "weights": "int8",
        "group_size": 32,
        "activations": "f32",
        "kv": "bf16",
        "block_size": 16,
    }
    model = report["model"]
    assert (model["name"], model["threads"]) == ("shape:tiny", 2)
    assert model["shape"]["hidden_size"] == 64
    assert 0 < model["step_weight_bytes"] <= model["weight_bytes"]
    assert model["kv_token_bytes"] == 2 * 2 * 2 * 32 * 2
    assert model["system_fingerprint"].startswith("hw_")
    runs = report["runs"]
    assert len(runs["prefill_tok_s"]) == 2
    assert {batch: len(many) for batch, many in runs["decode_ms_per_step"].items()} == {"1": 2, "3": 2}
    assert (
        len(runs["read_gb_s"])
        == len(runs["int8_gops"])
        == len(runs["bf16_gflops"])
        == len(runs["f32_gflops"])
        == 8
    )
    peaks = json.loads((tmp_path / "cache" / "peaks.json").read_text())
    assert peaks.keys() == {record_key(isa=model["isa"], threads=2)}


@pytest.mark.parametrize(
    ("weights", "activations", "peak"),
    [
        ("int8", "f32", "int8_gops"),
        ("bf16", "f32", "f32_gflops"),
        *[("bf16", "bf16", "bf16_gflops")] * ("avx512bf16" in available_isas()),
    ],
)
def test_prefill_is_compared_with_the_peak_of_its_products(
    capsys: pytest.CaptureFixture[str], weights: str, activations: str, peak: str
) -> None:
    report = told(
        capsys,
        "shape:tiny",
        *SMALL,
        "--weights",
        weights,
        "--activations",
        activations,
        "--batch",
        "1",
        "--repeat",
        "1",
    )
    assert report["efficiency"]["prefill_of"] == peak


def test_a_peak_on_record_is_told_with_what_it_is_now(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = record_key(isa="portable", threads=2)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "peaks.json").write_text(json.dumps({key: {"f32_gflops": 1e6, "int8_gops": 1e-3}}))
    work = (*SMALL, "--batch", "1", "--repeat", "1")
    assert main(["perf", "shape:tiny", *work, "--isa", "portable", "--weights", "bf16"]) == 0
    text = capsys.readouterr().out
    assert (
        len(re.findall(r"1,000,000 GFLOPS in float32 \(on record; \d+ now\)", text)) == 2
    )  # in the table and below
    assert "on record" not in text.replace("GFLOPS in float32 (on record", "")
    assert "bf16 (" not in text.split("medians of 1")[1]


def test_a_terminal_is_told_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["perf", "shape:tiny", *SMALL, "--batch", "1,2", "--repeat", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["settings"]["repeat"] == 2
    assert err == "loading shape:tiny\nwarming up\nrepeat 1/2\nrepeat 2/2\n"


def test_phases_add_up_to_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "shape:tiny", *SMALL, "--batch", "2", "--repeat", "2", "--phases")
    assert report["efficiency"]["decode"] is None  # only for one sequence
    assert [row["batch"] for row in report["phases"]["decode"]] == [2]
    for row in (report["phases"]["prefill"], *report["phases"]["decode"]):
        phases = row["phases_ms"]
        assert list(phases) == ["embed", "qkv", "attention", "attention_output", "mlp", "head", "wait"]
        assert min(phases.values()) >= 0
        assert sum(phases.values()) == pytest.approx(row["step_ms"], rel=1e-3)


def test_a_file_is_measured_as_well_and_the_table_names_every_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    assert (
        main(
            [
                "perf",
                str(path),
                *SMALL,
                "--weights",
                "int8",
                "--chunk-tokens",
                "10",
                "--repeat",
                "1",
                "--phases",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    for words in (
        "weights int8 in groups of 32",
        "prefill, 24 tokens",
        "decode, 1 sequence, context 24",
        "decode, 8 sequences, context 24",
        "\n-: no figure;",
        "The machine reads",
        "\nmlp ",
    ):
        assert words in text
    assert len(re.findall(r" -( |\n)", text)) == 2  # a prompt's step, and what eight sequences read


def test_an_unknown_shape_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "shape:huge") == "headway: There is no shape 'huge'; there are tiny.\n"


def test_the_bare_name_of_a_shape_is_answered_with_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        refused(capsys, "tiny")
        == "headway: Unknown model 'tiny': use shape:tiny for random weights of its shape.\n"
    )
    assert "Unknown model 'tinier': use one of smollm2" in refused(capsys, "tinier")


def test_work_beyond_the_context_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a context of 642 tokens; the model has 640" in refused(
        capsys, "shape:tiny", *SMALL, "--context", "640"
    )
    assert "a context of 641 tokens" in refused(
        capsys, "shape:tiny", "--prompt-tokens", "641", "--context", "1"
    )


def test_work_beyond_the_memory_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.cli.perf_run.available_memory_bytes", lambda: 100_000)
    assert "; 0.1 MiB of memory are available. Use a smaller model" in refused(capsys, "shape:tiny", *SMALL)


def test_logits_count_for_the_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runner.shapes.SHAPES", {"tiny": replace(SHAPE, vocab_size=100_000)})
    monkeypatch.setattr("headway.cli.perf_run.available_memory_bytes", lambda: 60_000_000)
    assert "for activations and logits" in refused(capsys, "shape:tiny", *SMALL, "--batch", "256")


def test_what_the_reading_takes_is_a_share_of_what_the_work_leaves_and_no_room_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def no_room(*, num_bytes: int, **_: object) -> None:
        taken.append(num_bytes)
        raise MemoryError

    monkeypatch.setattr("headway.cli.perf_run.LimitMeter", no_room)
    monkeypatch.setattr("headway.cli.perf_run.READ_BYTES", 1 << 40)
    monkeypatch.setattr("headway.cli.perf_run.available_memory_bytes", lambda: 20_000_000)
    small = ("--prompt-tokens", "24", "--output-tokens", "8", "--threads", "1")
    for batch in ("1", "512"):
        assert "The memory did not suffice" in refused(capsys, "shape:tiny", *small, "--batch", batch)
    kv_bytes = 511 * 32 * 2 * 2 * 2 * 32 * 2  # of the further sequences
    assert 1 <= taken[1] <= taken[0] - kv_bytes // 4


def test_ctrl_c_ends_it_within_a_step() -> None:
    """A child process's step of 50,000 tokens would take minutes; it is interrupted when it begins."""
    program = """
from headway.cli import perf_run
from headway.cli.main import main
from headway.runner import shapes
from headway.runner.native_runner import NativeRunner
from support.tiny_shapes import tiny_shape

def execute(runner, step):
    if len(step.tokens) == 50_000:
        print("begins", flush=True)
    return whole(runner, step)

whole, NativeRunner.execute = NativeRunner.execute, execute
perf_run.READ_BYTES = 1 << 20
shapes.SHAPES = {"long": tiny_shape(hidden_size=64, ffn_size=96, max_context=50_001)}
work = "--prompt-tokens 50000 --context 1 --output-tokens 1 --batch 1 --threads 1 --isa portable"
raise SystemExit(main(["perf", "shape:long", *work.split()]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == -signal.SIGINT
        finally:
            child.kill()


def test_other_block_sizes_are_the_cores_to_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert "must be a multiple of 16" in refused(capsys, "shape:tiny", *SMALL, "--block-size", "7")


@pytest.mark.parametrize("text", ["", "0", "1,", "1,x", "1;2", "-1"])
def test_what_is_no_list_of_batches(text: str) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["perf", "shape:tiny", "--batch", text])


def test_a_batch_named_twice_counts_once() -> None:
    assert build_parser().parse_args(["perf", "shape:tiny", "--batch", "8,1,8"]).batch == (8, 1)
