"""A run read back for a comparison has the figures that were printed of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.bench_report import as_json
from headway.lab.endpoint import parse_endpoint
from headway.lab.raw_file import write_raw
from headway.lab.recorded import read_run
from headway.lab.run_options import RunOptions
from support.lab_runs import answered, run_of


def test_latencies_leave_out_the_warm_up_that_the_summary_left_out(tmp_path: Path) -> None:
    exchanges = [
        answered(1000 * number, ttft_ms=(500 if number < 10 else 50) + number % 7, conversation=number)
        for number in range(80)
    ]
    result = run_of(RunOptions(endpoint=parse_endpoint("localhost:1")), exchanges)
    summary = result.summary
    assert summary.warm_up.num_excluded == 10
    write_raw(tmp_path / "run.parquet", result)
    found = read_run(tmp_path / "run.parquet", "RUN1", 0)
    for key, told in (
        ("ttft_p50", summary.ttft.successes.percentiles["p50"]),
        ("ttft_p95", summary.ttft.successes.percentiles["p95"]),
        ("itl_mean", summary.itl.mean),
        ("e2e_p50", summary.e2e.successes.percentiles["p50"]),
        ("output_tok_s", summary.output_tok_s),
    ):
        assert found.estimates[key].value == pytest.approx(told, rel=1e-5)
    assert found.traits.num_offered == 80


def test_turns_of_one_conversation_are_one_sample_of_a_printed_run(tmp_path: Path) -> None:
    widths = []
    for turns in (1, 5):
        exchanges = [
            replace(answered(1000 * number, conversation=number // turns), turn=number % turns + 1)
            for number in range(40)
        ]
        result = run_of(RunOptions(endpoint=parse_endpoint("localhost:1")), exchanges)
        path = tmp_path / f"{turns}.json"
        path.write_text(json.dumps(as_json(result)))
        interval = read_run(path, "RUN1", 0).estimates["failures"].interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert widths[1] > 2 * widths[0]
