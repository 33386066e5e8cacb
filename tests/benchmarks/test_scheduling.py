"""How scheduling's promises are measured: what is asked of whom, which rates are tried, what a run is said to show."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoints.servers import Server, headway
from headway.cli.main import build_parser
from headway.lab.endpoint import Endpoint
from headway.lab.model_list import ServedModel
from headway.lab.run_options import RunOptions
from headway.lab.stream_table import with_streams
from headway.lab.traffic import Traffic, plan_traffic
from headway.lab.workload import Conversation
from scheduling import cells
from scheduling.cells import CELLS, VARIANTS, keeps_slo, knee, trial_seconds
from scheduling.claims import claims
from scheduling.knee import LEAST_RATE, MOST_TRIALS, RESOLUTION, Trial, bracket, next_rate
from scheduling.mix import TENANTS, Stream, mix, reading
from scheduling.offer import Run, answered_rate, each_ttft_ms, figures, group_of, kind_of
from scheduling.render import markers, render
from scheduling.stage import NUM_BURSTS, Stage
from support.lab_runs import answered, failed


def traffics(streams: list[Stream]) -> dict[str, Traffic]:
    options = with_streams(RunOptions(endpoint=Endpoint(host="h", port=1, path="/v1")), streams)
    return {
        stream.name: replace(
            plan_traffic(stream.options), model=ServedModel(name="m", max_context_tokens=8192)
        )
        for stream in options.streams
    }


def rate_of(streams: list[Stream], group: str) -> float:
    """Requests per second, all turns of a conversation counted."""
    return sum(
        float(stream["arrival"].removeprefix("poisson:")) * (5 if "talk" in stream["name"] else 1)
        for stream in streams
        if stream["name"].startswith(f"{group}/")
    )


# ---- the mix ----


def test_the_mix_has_the_rate_that_is_asked_for_and_little_fresh_code() -> None:
    streams = mix(8.0, 30, run=0)
    assert rate_of(streams, "all") == pytest.approx(8)
    conversations = sum(
        float(stream["arrival"].removeprefix("poisson:")) for stream in streams if "talk" in stream["name"]
    )
    assert conversations / 8 < 0.05  # first turns, each of 50 fresh lines
    assert {stream["tenant"] for stream in streams} == set(TENANTS)


def some(traffic: Traffic, num: int) -> list[Conversation]:
    return list(islice(traffic.conversations(), num))


def test_every_tenants_questions_are_about_the_file_that_was_read() -> None:
    read = {str(stream["tenant"]): stream["name"] for stream in reading()}
    files = {tenant: some(traffics(reading())[name], 1)[0].system for tenant, name in read.items()}
    assert len(set(files.values())) == len(TENANTS)
    asked = traffics(mix(8.0, 30, run=2))
    for tenant in TENANTS[:2]:
        about = {talk.system for talk in some(asked[f"all/{tenant}"], 40) if talk.label == "shared-prefix"}
        assert about == {files[tenant]}


def test_no_run_asks_what_another_did() -> None:
    def questions(run: int) -> set[str]:
        made = traffics(mix(8.0, 30, run=run))
        return {
            talk.user_turns[0]
            for name in ("all/t1", "all/t1/talk")
            for talk in some(made[name], 30)
            if talk.label != "light"
        }

    assert not questions(0) & questions(1)


# ---- the knee ----


@given(st.floats(0.2, 60), st.floats(0.2, 20))
def test_the_knee_is_found_from_wherever_it_is_sought(true_rate: float, start: float) -> None:
    trials: list[Trial] = []
    while (rate := next_rate(trials, start)) is not None:
        trials.append(Trial(rate, rate <= true_rate))
    low, high = bracket(trials)
    assert len(trials) <= MOST_TRIALS
    if low is not None and high is not None:
        assert low <= true_rate < high
    if len(trials) < MOST_TRIALS and low is not None and high is not None:
        assert high / low <= 1 + RESOLUTION


def test_a_server_that_never_keeps_it_has_no_knee() -> None:
    trials: list[Trial] = []
    while (rate := next_rate(trials, 4 * LEAST_RATE)) is not None:
        trials.append(Trial(rate, kept=False))
    assert bracket(trials)[0] is None
    assert min(trial.rate for trial in trials) >= LEAST_RATE


def test_a_rate_kept_above_one_that_was_not_is_luck() -> None:
    assert bracket([Trial(2, True), Trial(4, False), Trial(6, True)]) == (2, 4)


def test_failures_and_slow_tokens_break_the_slo() -> None:
    quick = [answered(100.0 * number, conversation=number) for number in range(40)]
    assert keeps_slo({"all": figures(quick)})
    assert not keeps_slo({"all": figures([*quick, *(failed(9_000) for _ in range(3))])})
    assert not keeps_slo({"all": figures([answered(itl_ms=51)])})
    assert not keeps_slo({"all": figures([])})


# ---- what is kept of a run ----


def test_a_record_is_of_a_group_and_a_kind() -> None:
    exchange = replace(answered(turn=5, label="multi-turn"), stream="high/t1/talk")
    assert (group_of(exchange), kind_of(exchange)) == ("high", "turn 5")
    assert kind_of(answered(label="light")) == "light"


def test_figures_count_who_met_the_slo() -> None:
    found = figures([answered(ttft_ms=50), answered(ttft_ms=500), failed()])
    assert (found["offered"], found["admitted"], found["ok"], found["met"]) == (3, 3, 2, 1)
    assert found["ttft_ms"]["p95"] == 500
    assert found["ttft_with_failures_ms"]["p95"] == "inf"


def test_every_time_to_the_first_token_can_be_kept() -> None:
    assert each_ttft_ms([answered(ttft_ms=500), answered(ttft_ms=50), failed()]) == [50.0, 500.0]


def test_a_rate_is_of_the_time_in_which_most_were_answered() -> None:
    ended = [answered(0, ttft_ms=1_000 * (number + 1), num_tokens=1) for number in range(10)]
    assert answered_rate(ended) == pytest.approx(1)
    assert answered_rate([*ended[:9], answered(0, ttft_ms=60_000, num_tokens=1)]) == pytest.approx(1)
    assert answered_rate([failed()]) == 0


# ---- cells ----


@dataclass(slots=True)
class Rehearsal(Stage):
    """A stage on which nothing is served: what would be offered is kept, and answered at a capacity of 10 a second."""

    options: list[tuple[str, ...]] = field(default_factory=list)
    offered: list[list[Stream]] = field(default_factory=list)
    knee: float = 5.0

    @contextmanager
    def headway(self, *options: str, reads: bool = True) -> Iterator[int]:  # noqa: ARG002
        self.options.append(options)
        yield 1

    @contextmanager
    def serving(self, server: Server, *, reads: bool = True) -> Iterator[int]:  # noqa: ARG002
        yield 2

    def offer(
        self,
        port: int,  # noqa: ARG002
        name: str,  # noqa: ARG002
        streams: Any,
        seconds: float,  # noqa: ARG002
        *,
        each: str | None = None,  # noqa: ARG002
    ) -> Run:
        self.offered.append(list(streams))
        self.num_runs += 1
        rate = rate_of(list(streams), "all")
        return run_of(ttft_ms=100.0 if rate <= self.knee else 1_000.0)


def part_of(ok: int, ttft_ms: float, **change: Any) -> dict[str, Any]:
    latency = {"p50": ttft_ms, "p95": ttft_ms, "p99": ttft_ms, "n": ok}
    return {
        "offered": ok,
        "admitted": ok,
        "refused": 0,
        "refusals": [],
        "ok": ok,
        "errors": {},
        "met": ok,
        "ttft_ms": latency,
        "ttft_with_failures_ms": latency,
        "itl_ms": {"p50": 10.0, "p95": 20.0, "p99": 30.0, "n": ok},
        "output_tokens": 32 * ok,
        "cached_share": 0.5,
    } | change


def run_of(ttft_ms: float = 100.0, **change: Any) -> Run:
    return {
        "seconds": 10.0,
        "duration_s": 12.0,
        "answered_rate": 10.0,
        "believable": True,
        "all": part_of(100, ttft_ms),
        "groups": {},
        "kinds": {},
        "sharing": None,
    } | change


def crowded(ok: int, ttft_ms: float = 150.0, **change: Any) -> Run:
    return run_of(groups={"high": part_of(ok, ttft_ms, **change)}, each_ttft_ms=[ttft_ms] * ok)


def rehearsal(**known: Any) -> Rehearsal:
    return Rehearsal(
        command="headway",
        threads=2,
        slots=8,
        scale=1.0,
        logs=Path(),
        record=known.__setitem__,
        known=known.get,
    )


def test_capacity_is_measured_once() -> None:
    stage = rehearsal()
    assert stage.capacity() == stage.capacity() == 10
    assert len(stage.offered) == NUM_BURSTS


def test_the_same_requests_of_high_are_offered_alone_and_among_twice_the_capacity() -> None:
    stage = rehearsal()
    case = cells.high(stage)
    assert list(case["runs"]) == ["alone 1", "crowded 1", "crowded 2", "alone 2", "alone 3", "crowded 3"]
    by_name = dict(zip(case["runs"], stage.offered[NUM_BURSTS:], strict=True))
    for pair in (1, 2, 3):
        alone, crowded = by_name[f"alone {pair}"], by_name[f"crowded {pair}"]
        assert alone == [stream for stream in crowded if stream.get("class") == "high"]
        assert rate_of(alone, "high") == pytest.approx(3)
        assert sum(rate_of(crowded, group) for group in ("high", "normal", "low")) == pytest.approx(20)
        assert {stream.get("class") for stream in crowded} == {"high", None, "low"}
    skips = [{stream["skip"] for stream in by_name[f"alone {pair}"]} for pair in (1, 2, 3)]
    assert all(a.isdisjoint(b) for a, b in combinations(skips, 2))


def test_classes_are_offered_a_third_of_twice_the_capacity_each() -> None:
    stage = rehearsal()
    cells.low(stage)
    rates = [rate_of(stage.offered[-1], group) for group in ("high", "normal", "low")]
    assert rates == pytest.approx([20 / 3] * 3, rel=1e-4)


def test_one_tenant_asks_for_more_and_longer() -> None:
    stage = rehearsal()
    cells.fairness(stage)
    greedy, *others = stage.offered[-1]
    assert (greedy["arrival"], greedy["workload"]) == ("closed:40", "context:512")
    assert {(other["arrival"], other["workload"]) for other in others} == {("closed:4", "context:128")}
    assert greedy["output_tokens"] == 4 * others[0]["output_tokens"]


def test_the_knee_of_a_server_is_sought_around_what_it_answers() -> None:
    stage = rehearsal()
    stage.knee = 5.5
    case = knee(stage, None)
    assert 5.5 / (1 + RESOLUTION) < case["rate"] <= 5.5
    assert [run["kept"] for name, run in case["runs"].items() if name != "burst"].count(True) >= 1
    assert all(stream["ttft_ms"] == 480 for stream in stage.offered[-1])


@pytest.mark.parametrize(("rate", "seconds"), [(20.0, 20), (4.0, 25), (1.0, 45), (0.2, 75)])
def test_a_rate_is_offered_for_enough_requests(rate: float, seconds: float) -> None:
    assert trial_seconds(rate) == pytest.approx(seconds)


def test_overload_is_ten_times_the_knee_which_has_to_be_known() -> None:
    stage = rehearsal(**{"knee headway": {"rate": 4.0}})
    cells.overload(stage)
    assert rate_of(stage.offered[-1], "all") == pytest.approx(40)
    with pytest.raises(ValueError, match="knee"):
        cells.overload(rehearsal())


def test_variants_differ_in_the_servers_options_alone() -> None:
    stage = rehearsal()
    cells.variants(stage)
    assert stage.options[1:] == list(VARIANTS.values())
    loads = [[stream | {"skip": 0} for stream in streams] for streams in stage.offered[NUM_BURSTS:]]
    assert all(load == loads[0] for load in loads)


@pytest.mark.parametrize("options", [*VARIANTS.values(), ("--trust-headers", "--max-num-seqs", "16")])
def test_headway_has_the_options_it_is_served_with(options: tuple[str, ...]) -> None:
    server = headway("headway", 2, options)
    build_parser().parse_args([*server.command[1:], "--port", "1"])


# ---- the table ----


def results() -> dict[str, Any]:
    sharing = {
        "window_s": 5.0,
        "windows": 9,
        "jain": 0.97,
        "jain_least": 0.9,
        "service_shares": {"t1": 0.15},
        "token_shares": {"high": 0.49, "normal": 0.31, "low": 0.2},
        "token_share_ranges": {},
        "untold": 0,
    }
    plan = {"p50": 60.0, "p99": 90.0}
    kept = run_of() | {"rate": 6.0, "kept": True}
    return {
        "date": "2026-11-30",
        "machine": {"cpu": "C", "cpu_flags": ["avx2"], "virtual_machine": True, "cores": 2},
        "threads": 2,
        "headway": {"version": "headway 1", "commit": "abc"},
        "settings": {"output_tokens": 32, "slots": 16, "scale": 1.0},
        "servers": {"headway": "headway serve smollm2"},
        "cases": {
            "capacity": {"runs": {"burst": run_of()}, "rate": 10.0},
            "high": {
                "runs": {
                    "alone 1": run_of(each_ttft_ms=[100.0] * 60),
                    "alone 2": run_of(each_ttft_ms=[100.0] * 40),
                    "crowded 1": crowded(60),
                    "crowded 2": crowded(40, offered=41),
                }
            },
            "fairness": {"runs": {"tenants": run_of(sharing=sharing)}, "greedy": "t1"},
            "low": {"runs": {"classes": run_of(sharing=sharing)}},
            "knee headway": {"runs": {"6/s": kept}, "rate": 6.0},
            "knee llama.cpp": {"runs": {}, "rate": 2.0, "broken_rate": 2.2},
            "knee vllm": {"runs": {}, "rate": None},
            "overload": {"runs": {"overload": run_of()}, "rate": 60.0},
            "intervals": {
                "runs": {
                    "alone": run_of(),
                    "beside": run_of(groups={"running": part_of(9, 50.0), "long": part_of(4, 5e3)}),
                }
            },
            "variants": {"runs": {name: run_of() for name in VARIANTS}},
            "planning": {"runs": {"engine": {"step_us": plan, "plan_us": plan}}},
        },
    }


def test_each_promise_has_a_row_and_a_judgement() -> None:
    found = {claim.what.split(" ")[0]: claim.met for claim in claims(results()["cases"])}
    assert found["Jain's"] is True
    judged = [claim.met for claim in claims(results()["cases"])]
    assert judged == [True, True, True, True, True, False, True, True, True]
    assert "3.00 ×: 6.00/s against 2.00/s" in render(results(), "x.json")
    assert "against no rate" in render(results(), "x.json")


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("high", {"crowded 1": crowded(90, offered=100)}),
        ("high", {"crowded 2": crowded(40, ttft_ms=250.0)}),
        ("intervals", {"beside": run_of(groups={"running": part_of(9, 1.0, itl_ms={"p99": 66.0, "p50": 1.0,
          "p95": 1.0, "n": 9}), "long": part_of(4, 5e3)})}),
        ("overload", {"overload": run_of() | {"all": part_of(100, 100.0, met=94)}}),
        ("overload", {"overload": run_of() | {"all": part_of(80, 100.0)}}),
    ],
)  # fmt: skip
def test_a_promise_that_is_broken_is_missed(case: str, change: dict[str, Any]) -> None:
    data = results()
    data["cases"][case]["runs"] |= change
    before = [claim.met for claim in claims(results()["cases"])]
    after = [claim.met for claim in claims(data["cases"])]
    assert [met for old, met in zip(before, after, strict=True) if old is not met] == [False]


def test_a_peer_whose_knee_was_not_reached_is_not_beaten() -> None:
    data = results()
    data["cases"]["knee llama.cpp"]["broken_rate"] = None
    (row,) = (claim for claim in claims(data["cases"]) if "llama-server" in claim.what)
    assert (row.met, row.measured) == (None, "3.00 ×: 6.00/s against at least 2.00/s")


def test_what_failed_says_so_and_what_was_not_asked_for_is_not_there() -> None:
    (row,) = claims({"high": {"error": "it fell over"}})
    assert (row.met, row.measured) == (None, "not measured: it fell over")
    peers = claims({"knee vllm": {"error": "no wheel"}, "knee headway": {"runs": {}, "rate": 6.0}})
    assert [(row.met, row.measured) for row in peers] == [(None, "not measured: no wheel")]


def test_a_results_file_has_a_table_of_its_own() -> None:
    (begin, end), (other, _) = (
        markers(Path("a/2026-11-30-scheduling.json")),
        markers(Path("2026-12-01-x-y.json")),
    )
    assert (begin, end) == ("<!-- scheduling: begin -->", "<!-- scheduling: end -->")
    assert other == "<!-- x-y: begin -->"


def test_the_table_names_every_run() -> None:
    text = render(results(), "x.json")
    assert "Raw data: `x.json`" in text
    for name in ("crowded 1", "tenants", "6/s", "fcfs, cache, chunks"):
        assert f"| {name} |" in text
    assert set(CELLS) | {"capacity"} >= {"high", "planning"}
