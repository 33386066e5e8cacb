"""How runtime formats are compared: the KV cache's shares, the likelihood's deviation, the tables, what stays loaded."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import formats
from format_accuracy import compare_nll
from format_report import BEGIN, END, kv_shares, medians, render, render_into
from formats import FORMATS, Bench, Format, Runners, listed, sizes
from headway.core.config import KvFormat
from headway.runner.measure import Workload
from headway.runner.native_runner import NativeRunner

WORKLOAD = Workload(prompt_tokens=16, output_tokens=1, context=16, batches=(1,), chunk_tokens=16, repeat=1)


def test_the_share_of_the_kv_cache_grows_with_batch_and_context() -> None:
    shares = kv_shares(
        weight_bytes=1_000,
        step_weight_bytes=1_000,
        kv_token_bytes=10,
        seen_tokens={100: 100, 300: 300},
        batches=(1, 3),
    )
    assert [(one["context"], one["batch"], one["memory_share"]) for one in shares] == [
        (100, 1, 0.5),
        (100, 3, 0.75),
        (300, 1, 0.75),
        (300, 3, 0.9),
    ]
    assert all(one["read_share"] == one["memory_share"] for one in shares)


def test_a_step_reads_no_table_of_embeddings_and_no_more_than_the_window() -> None:
    (share,) = kv_shares(
        weight_bytes=3_000, step_weight_bytes=1_500, kv_token_bytes=10, seen_tokens={100: 50}, batches=(1,)
    )
    assert (share["memory_share"], share["read_share"]) == (0.25, 0.25)
    (share,) = kv_shares(
        weight_bytes=3_000, step_weight_bytes=500, kv_token_bytes=10, seen_tokens={100: 50}, batches=(1,)
    )
    assert (share["memory_share"], share["read_share"]) == (0.25, 0.5)


def test_every_figure_is_a_median() -> None:
    runs = [{"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, {"a": 100.0, "b": 2.0}]
    assert medians(runs) == {"a": 3.0, "b": 1.0}


def test_a_deviation_is_relative_and_has_an_error() -> None:
    found = compare_nll(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 3.0]))
    assert found["deviation"] == pytest.approx(0.25 / 2.25, abs=1e-6)
    assert found["deviation_error"] == pytest.approx(0.25 / 2.25, abs=1e-6)  # one of four differs


def side(name: str, kv: str, **changes: Any) -> dict[str, Any]:
    shares = kv_shares(
        weight_bytes=1_000_000,
        step_weight_bytes=1_000_000,
        kv_token_bytes=1_000,
        seen_tokens={1_000: 1_000},
        batches=(1,),
    )
    return {
        "format": name,
        "kv": kv,
        "weight_bytes": 1_000_000,
        "shares": shares,
        "medians": {"prefill_tok_s": 99.6, "decode_ms": 1.234},
        **changes,
    }


ACCURACY = {"deviation": 0.0123, "deviation_error": 0.001, "greedy_same": 3, "greedy_tokens": 4}
DATA: dict[str, Any] = {
    "date": "2026-01-02",
    "machine": {"cpu": "C", "cpu_flags": ["avx2"]},
    "threads": 2,
    "settings": {"repeat": 5, "prompt_tokens": 512, "context": 1024},
    "models": {
        "small": {
            "sides": [
                side("bf16", "int8", accuracy=ACCURACY),
                side("other", "int8", accuracy=ACCURACY),
                {"format": "int8-128", "kv": "int8", "error": "no such rows"},
            ]
        },
        "shape:x": {"sides": [side("bf16", "bf16")]},
    },
}


def test_tables_show_medians_deviations_and_shares() -> None:
    text = render(DATA, "results.json")
    lines = text.splitlines()
    assert "| bf16 | int8 | 0.001 | 100 | 1.23 | +1.23% ± 0.10% | 3 of 4 |" in lines
    assert "| int8-128 | int8 | not possible: no such rows |  |  |  |  |" in lines
    assert "| bf16 | bf16 | 0.001 | 100 | 1.23 |" in lines  # random weights: no likelihood
    assert "| bf16, other | int8 | 50% |" in lines  # as much memory, one row
    assert text.count("quantised already") == 1
    assert "`results.json`" in lines[0]


def test_shares_of_memory_and_of_reading_are_told_apart_where_they_differ() -> None:
    one = side("bf16", "bf16")
    one["shares"] = kv_shares(
        weight_bytes=3_000, step_weight_bytes=1_000, kv_token_bytes=10, seen_tokens={100: 100}, batches=(1,)
    )
    assert "| bf16 | bf16 | 25% / 50% |" in render(DATA | {"models": {"x": {"sides": [one]}}})


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    render_into(document, DATA)
    render_into(document, DATA)
    assert document.read_text() == f"before\n{BEGIN}\n\n{render(DATA)}\n\n{END}\nafter\n"


def test_runners_are_loaded_once_if_there_is_room_and_for_every_turn_if_not() -> None:
    loads: list[Format] = []

    def load(chosen: Format) -> dict[KvFormat, NativeRunner]:
        loads.append(chosen)
        return {}

    for keep, expected in ((True, 2), (False, 4)):
        loads.clear()
        runners = Runners(load, keep=keep)
        for name in ("bf16", "int4", "int4", "bf16", "int4"):
            runners[FORMATS[name]]
        assert len(loads) == expected


def test_formats_that_do_not_exist_are_refused() -> None:
    parse = listed(("a", "b"))
    assert parse("b,a") == ["b", "a"]
    with pytest.raises(argparse.ArgumentTypeError, match="no such format: c; of a, b"):
        parse("a,c")


def test_a_table_says_what_was_left_out_and_needs_no_thread_count() -> None:
    left_out = {"shape:x": DATA["models"]["shape:x"] | {"left_out": {"auto": "there is no file"}}}
    lines = render(DATA | {"models": left_out, "threads": None}).splitlines()
    assert lines[0] == "2026-01-02, C (avx2); medians of 5 interleaved rounds."
    assert lines[-1] == "auto is left out: there is no file."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--repeat 0", "whole number of at least 1"),
        ("--formats auto --models shape:llama-1.4b", "nothing is left to measure but auto: random weights"),
        ("--models shape:llama-1.4b,shape:nope", "There is no shape 'nope'"),
        ("--models shape:llama-1.4b,nope", "Unknown model 'nope'"),
        ("--read nofile", "No such file"),
        ("--read other.json", "other.json is not a results file"),
        ("--read broken.json", "broken.json is not a results file"),
    ],
)
def test_what_cannot_be_measured_or_read_is_told_in_a_line_before_anything_is(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(formats, "measure_model", measured)
    monkeypatch.setattr(sys, "argv", ["formats.py", *arguments.split()])
    Path("other.json").write_text(json.dumps({"found": []}))
    Path("broken.json").write_text("{")
    with pytest.raises(SystemExit) as ended:
        formats.main()
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert message in said.strip().splitlines()[-1]


@pytest.mark.native
def test_sizes_come_from_the_core_and_random_weights_have_no_auto() -> None:
    bench = Bench("shape:llama-1.4b", WORKLOAD, 1, ("bf16", "int8"))
    found = list(sizes(bench, ["bf16", "int8-32", "auto"]))
    assert [(one["format"], one["kv"]) for one in found] == [
        ("bf16", "bf16"),
        ("bf16", "int8"),
        ("int8-32", "bf16"),
        ("int8-32", "int8"),
    ]
    assert found[0]["weight_bytes"] > found[2]["weight_bytes"]
    assert found[0]["kv_token_bytes"] > found[1]["kv_token_bytes"]
    for one in found:  # tied embeddings, full attention
        assert all(share["memory_share"] == share["read_share"] for share in one["shares"])
