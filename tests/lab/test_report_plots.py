"""The sections with plots: what is drawn, in plotly's form, and what is said where there is nothing to draw."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import plotly.graph_objects
import pytest

from headway.lab.distribution_plots import itl_section, ttft_section
from headway.lab.exchange import Exchange
from headway.lab.ladder import Measured
from headway.lab.ladder_plot import ladder_section
from headway.lab.ladder_run import LadderRun, LadderStep
from headway.lab.load_plots import MOST_POINTS, concurrency_section, prompt_section, rate_section
from headway.lab.measurement import RunResult
from headway.lab.plotly_form import plain
from headway.lab.report_section import Section
from headway.lab.report_words import overview_section
from headway.lab.summary import summarise
from headway.lab.waterfall import MOST_ROWS, Part, parts, waterfall_section
from support.lab_runs import answered, failed, result_of, usual_run

MS = 1_000_000
PLOTS = (ttft_section, itl_section, rate_section, prompt_section, concurrency_section, waterfall_section)
Traces = dict[str, Mapping[str, Any]]


def drawn(section: Section) -> Traces:
    assert section.plot is not None, section.text
    return {str(trace.get("name")): trace for trace in section.plot.traces}


@pytest.mark.parametrize("make", PLOTS)
def test_plotly_knows_every_property(make: Callable[[RunResult], Section]) -> None:
    plot = make(usual_run()).plot
    assert plot is not None
    assert plotly.graph_objects.Figure(data=plot.traces, layout=plot.layout).data


@pytest.mark.parametrize("make", PLOTS)
@pytest.mark.parametrize("run", [[], [failed()], [answered(num_tokens=1)]])
def test_a_plot_without_data_is_left_out_and_the_reason_told(
    make: Callable[[RunResult], Section], run: list[Any]
) -> None:
    section = make(result_of(run, start_ns=None))
    assert all(section.text)
    assert section.text
    if not run:
        assert section.plot is None


def test_a_distribution_marks_its_percentiles() -> None:
    run = [answered(100 * n, ttft_ms=50 + n, conversation=n) for n in range(100)]
    traces = drawn(ttft_section(result_of(run)))
    assert traces["p50: 99 (89 to 110) ms"]["x"] == [99, 99]
    assert [name[:3] for name in traces if name.startswith("p95")] == ["p95"]
    assert sum(traces["requests"]["y"][1:-2]) == pytest.approx(1, abs=0.01)
    assert "failed" not in " ".join(ttft_section(result_of(run)).text)
    assert "1 that failed" in " ".join(ttft_section(result_of([*run, failed()])).text)


def test_prompts_from_the_cache_have_a_distribution_of_their_own() -> None:
    run = [answered(number, cached_tokens=500 if number < 10 else 16) for number in range(30)]
    assert {"prompt mostly new", "mostly cached"} < drawn(ttft_section(result_of(run))).keys()
    assert "requests" in drawn(ttft_section(result_of(run[5:])))


def test_intervals_are_drawn_per_token() -> None:
    traces = drawn(itl_section(result_of([answered(itl_ms=10, num_tokens=4), answered(itl_ms=20)])))
    assert traces["tokens"]["y"][1] == pytest.approx(3 / 7, abs=1e-4)


def test_the_course_of_a_run_shows_rate_and_failures() -> None:
    run = [answered(100 * number) for number in range(20)]
    traces = drawn(rate_section(result_of(run)))
    assert traces["answered"]["y"] == pytest.approx([5 / 0.475] * 4, rel=1e-3)
    assert "failed" not in traces
    traces = drawn(rate_section(result_of([*run, *[failed(1_900)] * 5])))
    assert traces["failed"]["y"][:4] == [0, 0, 0, 0]
    assert traces["failed"]["y"][4] == pytest.approx(5 / 0.38, rel=1e-3)


def test_the_line_through_prompts_is_drawn_and_told() -> None:
    run = [answered(1e3 * n, ttft_ms=20 + 100 * n, prompt_tokens=1_000 * n + 64) for n in range(1, 20)]
    section = prompt_section(result_of(run))
    line = drawn(section)["100 ms per 1,000 tokens"]
    assert line["x"] == [1_064, 19_064]
    assert line["y"] == pytest.approx([120, 1_920])
    assert "100 ms for 1,000 tokens more" in section.text[0]


def test_cached_tokens_are_not_what_a_prompt_cost() -> None:
    run = [answered(n, prompt_tokens=1_000 + n, cached_tokens=900 if n % 2 else 0) for n in range(4)]
    traces = drawn(prompt_section(result_of(run)))
    assert traces["prompt mostly new"]["x"] == [1_000, 1_002]
    assert traces["mostly cached"]["x"] == [101, 103]


def test_no_more_dots_than_a_browser_draws_quickly() -> None:
    run = [answered(n, num_tokens=1, prompt_tokens=100 + n) for n in range(MOST_POINTS + 50)]
    section = prompt_section(result_of(run))
    assert len(drawn(section)["requests"]["x"]) == MOST_POINTS
    assert "2,000 of 2,050 requests are shown" in section.text[0]


def test_latency_is_drawn_over_the_others_under_way() -> None:
    run = [answered(10_000 * step + level, ttft_ms=100) for step in range(3) for level in range(3)]
    section = concurrency_section(result_of(run))
    assert section.plot is not None
    assert section.plot.traces[0]["x"] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert section.plot.traces[1]["x"] == [0, 1, 2]
    assert section.plot.traces[1]["y"] == [100, 100, 100]
    assert section.plot.traces[3]["yaxis"] == "y2"


def step(
    rate: float, p95_ms: float, high_ms: float, *exchanges: Exchange, slo_kept: bool = True
) -> LadderStep:
    measured = Measured(
        rate=rate, p95_ms=p95_ms, p95_low_ms=min(p95_ms, 50), p95_high_ms=high_ms, slo_kept=slo_kept
    )
    return LadderStep(
        measured=measured,
        exchanges=exchanges,
        num_cut=0,
        start_ns=0,
        lag_p99_ns=0,
        num_unsent_turns=0,
        client_late=False,
    )


def test_a_ladder_shows_latency_against_rate() -> None:
    assert ladder_section(usual_run()) is None
    steps = (
        step(10, 60, 80, answered(ttft_ms=10)),
        step(20, 90, 130),
        step(30, 90, 99, slo_kept=False),
        step(40, 90, math.inf),
        step(50, math.inf, math.inf, answered(ttft_ms=60), failed()),
    )
    ladder = LadderRun(steps=steps, finding=None, limit_ms=100)
    summary = summarise(steps[-1].exchanges, seek_warm_up=False)
    result = replace(usual_run(), ladder=ladder, summary=summary)
    section = ladder_section(result)
    assert section is not None
    traces = drawn(section)
    assert traces["kept"]["x"] == [10]
    assert traces["kept"]["error_y"]["array"] == [20]
    assert traces["not kept beyond doubt"]["x"] == [20, 30, 40]
    assert traces["not kept beyond doubt"]["marker"]["symbol"] == ["circle", "circle", "triangle-up"]
    assert traces["limit: 100 ms"]["y"] == [100, 100]
    assert "1 of 5 steps are not drawn" in section.text[0]
    assert section.plot is not None
    assert plotly.graph_objects.Figure(data=section.plot.traces, layout=section.plot.layout).data
    # The figures are those of the last step, and so are the distributions.
    assert drawn(ttft_section(result))["requests"]["x"][0] == 57
    assert overview_section(result).text[:1] == (
        "The ladder did not come to its end; 5 steps were measured.",
    )
    assert "at 50 a second" in overview_section(result).text[1]


def test_a_ladder_whose_every_step_was_broken_says_so() -> None:
    ladder = LadderRun(steps=(step(50, math.inf, math.inf),), finding=None, limit_ms=100)
    section = ladder_section(replace(usual_run(), ladder=ladder))
    assert section is not None
    assert section.plot is None
    assert section.text[-1] == "No step has a P95 to plot."


def test_a_request_is_cut_into_what_its_time_went_to() -> None:
    exchange = answered(10, ttft_ms=50, itl_ms=10, num_tokens=3, dispatched_ms=13, connect_ms=4)
    assert parts(exchange) == [
        Part(name="lag", from_ns=10 * MS, to_ns=13 * MS),
        Part(name="connection", from_ns=13 * MS, to_ns=17 * MS),
        Part(name="first_token", from_ns=17 * MS, to_ns=60 * MS),
        Part(name="tokens", from_ns=60 * MS, to_ns=80 * MS),
    ]
    assert parts(failed(10, after_ms=5)) == [Part(name="first_token", from_ns=10 * MS, to_ns=15 * MS)]


def test_the_waterfall_marks_what_failed() -> None:
    traces = drawn(
        waterfall_section(result_of([answered(100), failed(0, message="<b>no</b>"), answered(200)]))
    )
    assert traces["failed"]["y"] == [1]
    assert traces["failed"]["x"] == [0.005]
    assert traces["failed"]["text"] == ["error_event: &lt;b&gt;no&lt;/b&gt;"]
    assert traces["tokens, until the last"]["y"] == [2, 3]
    assert traces["tokens, until the last"]["base"] == [0.15, 0.25]


def test_the_waterfall_can_be_seen_from_each_request_s_start() -> None:
    section = waterfall_section(result_of([answered(100), answered(200), failed(300)]))
    assert section.plot is not None
    layout: Any = section.plot.layout
    moved, _ = layout["updatemenus"][0]["buttons"][1]["args"]
    assert moved["base"] == [[0, 0, 0], [0.05, 0.05], None]
    assert moved["x"] == [[0.05, 0.05, 0.005], [0.04, 0.04], [0.005]]


def test_the_waterfall_of_a_long_run_is_bounded() -> None:
    section = waterfall_section(result_of([answered(number, num_tokens=2) for number in range(1_000)]))
    assert len(drawn(section)["tokens, until the last"]["y"]) == MOST_ROWS
    assert "200 of 1,000 are shown" in section.text[0]


def test_text_from_outside_is_no_markup_of_plotly_s() -> None:
    assert plain("<a href='x'>%{x}&") == "&lt;a href='x'&gt;% {x}&amp;"


def test_a_server_that_says_no_lengths_has_no_plot_of_them() -> None:
    told = answered()
    silent = replace(told, answer=replace(told.answer, usage=None))
    assert "No answer said" in prompt_section(result_of([silent])).text[0]
    assert "equally long" in prompt_section(result_of([told, told])).text[0]
