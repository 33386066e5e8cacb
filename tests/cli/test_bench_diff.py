"""`headway bench diff` over files that the command itself wrote."""

import json
from pathlib import Path

import pytest

from headway.cli.bench_report import as_json
from headway.cli.main import main
from headway.lab.endpoint import parse_endpoint
from headway.lab.raw_file import write_raw
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from support.lab_runs import answered, run_of


def recorded(
    folder: Path, name: str, *, slow: float = 1, slo: str | None = None, workload: str = "light"
) -> Path:
    """Write a run of 40 conversations, in both forms."""
    options = RunOptions(
        endpoint=parse_endpoint("localhost:1"),
        slo=None if slo is None else parse_slo(slo),
        workload=workload,
    )
    result = run_of(
        options,
        [
            answered(1000 * number, ttft_ms=(50 + number % 5) * slow, conversation=number)
            for number in range(40)
        ],
    )
    path = folder / f"{name}.parquet"
    write_raw(path, result, as_json(result))
    path.with_suffix(".json").write_text(json.dumps(as_json(result)))
    return path


@pytest.mark.parametrize("suffixes", [(".parquet", ".parquet"), (".parquet", ".json"), (".json", ".json")])
def test_a_difference_is_told_with_its_caveat(
    suffixes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (recorded(tmp_path, "a", slo="ttft=53ms"), recorded(tmp_path, "b", slow=1.2, slo="ttft=53ms"))
    files = [str(run.with_suffix(suffix)) for run, suffix in zip(runs, suffixes, strict=True)]
    assert main(["bench", "diff", *files]) == 0
    out = capsys.readouterr().out
    assert out.startswith("RUN2 is worse than RUN1 in TTFT p50 (+20.0%)")
    assert "equal to RUN1 to within 5% in ITL mean" in out
    assert "One run stands against one" in out.splitlines()[1]
    assert ("Of RUN2 only figures are known" in out) == (suffixes == (".parquet", ".json"))
    assert main(["bench", "diff", *files, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    figure = told["figures"]["ttft_p50"]
    assert (figure["values"], figure["judgement"]) == ([pytest.approx(52), pytest.approx(62.4)], "worse")
    assert figure["difference_ci95"][0] > 8
    assert told["figures"]["goodput"]["values"] == [0.8, 0]
    assert [run["workload"] for run in told["runs"]] == ["light", "light"]


def test_runs_that_are_not_alike_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = recorded(tmp_path, "a", slo="ttft=53ms")
    b = recorded(tmp_path, "b", slo="ttft=60ms", workload="medium")
    printed = json.loads(a.with_suffix(".json").read_text())
    a = tmp_path / "busy.json"
    a.write_text(json.dumps(printed | {"server": {"source": "vllm", "other_requests": 3}}))
    assert main(["bench", "diff", str(a), str(b), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["against"] == [
        "RUN1 and RUN2 were not asked alike: workload (light, medium).",
        "The server answered 3 requests of others during RUN1.",
        "Goodput is left out: the runs had different SLOs.",
        "Of RUN1 only figures are known, no records: intervals are combined from those of each run.",
    ]
    assert "goodput" not in told["figures"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "PAR1", "nothing\n", '{"headway": "0"}', "\x00", "9" * 5000]
)
def test_what_holds_no_run_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = recorded(tmp_path, "a")
    (tmp_path / "x").write_text(text)
    for path in ("x", "missing", "."):
        assert main(["bench", "diff", str(good), str(tmp_path / path)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("headway: ")
        assert err.count("\n") == 1


def test_a_least_effect_is_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "diff", "a", "b", "--least-effect", "5"])
    assert "does not lie between 0 and 1" in capsys.readouterr().err
