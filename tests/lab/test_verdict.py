"""What rounds say: no difference by chance of one figure among several, none from a selection of requests."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headway.lab import distribution
from headway.lab.endpoint import parse_endpoint
from headway.lab.exchange import Exchange
from headway.lab.rounds import Plan, Round, Rounds
from headway.lab.run_options import RunOptions
from headway.lab.verdict import COSTS, Verdict, judge_all, verdict
from support.lab_runs import answered, run_of
from support.scripted_stream import play


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of intervals within a run, which no verdict over rounds looks at."""
    monkeypatch.setattr(distribution, "RESAMPLES", 10)


OPTIONS = RunOptions(endpoint=parse_endpoint("localhost:1"))
Side = Callable[[int], Sequence[Exchange]]


def run(
    ttft_ms: float = 50, itl_ms: float = 10, num_tokens: int = 6, cached_tokens: int | None = None
) -> list[Exchange]:
    return [
        answered(
            1000 * number,
            ttft_ms=ttft_ms * (1 + number / 100),
            itl_ms=itl_ms,
            num_tokens=num_tokens,
            conversation=number,
            prompt_tokens=100,
            cached_tokens=cached_tokens,
        )
        for number in range(4)
    ]


def judged(
    a: Side, b: Side, *, num: int = 5, arrival: str | None = None, lag_p99_ns: float = 0, same: bool = False
) -> Verdict:
    options = RunOptions(endpoint=OPTIONS.endpoint, arrival=arrival)
    rounds = tuple(
        Round(
            number=number,
            order=("A", "B"),
            a=run_of(options, a(number)),
            b=run_of(options, b(number), lag_p99_ns=lag_p99_ns),
        )
        for number in range(1, num + 1)
    )
    done = Rounds(
        plan=Plan(a=OPTIONS, b=OPTIONS, num_rounds=num), rounds=rounds, same_server=same, interrupted=False
    )
    return verdict(done, least_effect=0.05)


def judgements(found: Verdict) -> dict[str, str]:
    return {figure.cost.key: figure.comparison.judgement for figure in found.figures}


def steady(number: int) -> list[Exchange]:
    return run(ttft_ms=50 + number % 2 / 10, itl_ms=10 + number % 3 / 100)


def test_a_slower_interval_is_found_beside_an_equal_ttft() -> None:
    found = judged(steady, lambda number: run(50 + number % 3 / 10, 11 + number % 2 / 100))
    assert found.judgement == "slower"
    assert found.sentence.startswith("B is slower than A in ITL mean (1.1 times, 95 % interval 1.")
    assert "equal to A to within 5% in TTFT p50, TTFT p95 and" in found.sentence
    assert judgements(found)["itl_mean"] == "slower"


def test_what_is_equal_in_every_figure_is_equal() -> None:
    found = judged(steady, lambda number: steady(number + 1))
    assert found.judgement == "equal"
    assert found.sentence == (
        "B is equal to A to within 5% in TTFT p50, TTFT p95, ITL mean, E2E p50 and time per token of all users."
    )
    assert found.against == ()


def test_faster_in_one_and_slower_in_another_is_mixed() -> None:
    found = judged(steady, lambda number: run(40 + number % 2 / 10, 12 + number % 2 / 100))
    assert found.judgement == "mixed"
    assert "faster than A in TTFT p50" in found.sentence
    assert "slower than A in ITL mean" in found.sentence


def test_like_sides_are_rarely_told_apart_by_any_figure() -> None:
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(400):
        sides = [(cost, *np.exp(rng.normal(4, 0.3, (2, 5)))) for cost in COSTS]
        found = judge_all(sides, least_effect=0.05)
        told += any(figure.comparison.judgement in ("faster", "slower") for figure in found)
    assert told <= 31  # 5 % are 20, and two and a half deviations


def test_holm_takes_back_what_one_figure_among_several_shows_by_chance() -> None:
    """A p-value of 0.02 is enough alone, and not among five figures."""
    noise = [1.0, 1.12, 1.05, 1.19, 1.09]
    found = judged(lambda _: run(), lambda number: run(ttft_ms=50 * noise[number - 1]))
    figure = next(figure for figure in found.figures if figure.cost.key == "ttft_p50")
    assert figure.comparison.interval is not None
    assert figure.comparison.interval[0] > 1
    assert figure.adjusted_p is not None
    assert figure.adjusted_p > 0.05
    assert figure.comparison.judgement == "unknown"
    assert found.judgement == "unknown"


def test_a_side_that_fails_too_often_is_not_compared() -> None:
    def failing(number: int) -> list[Exchange]:
        return [*run(), play(status=429)] if number in (2, 4) else run()

    found = judged(steady, failing)
    assert found.judgement == "failed"
    assert found.sentence == "Not comparable: B in 2 of 5 rounds failed too often to have a figure."
    assert "failed: 0 of 20 in A and 2 of 22 in B" in found.against[0]
    assert {figure.adjusted_p for figure in found.figures} == {None}


def test_one_failure_of_twenty_is_borne() -> None:
    found = judged(
        steady,
        lambda number: [*(4 * run())[:12], *(2 * run())[:7], *([play(status=429)] if number == 1 else [])],
    )
    assert found.judgement != "failed"


def test_too_few_rounds_have_no_verdict() -> None:
    for num in (0, 3):
        found = judged(steady, steady, num=num)
        assert (found.judgement, found.figures) == (None, ())
        assert found.sentence == f"{num} of {num} rounds are complete; a verdict takes {5 - num} more."


@pytest.mark.parametrize("arrival", ["poisson:5", "trace"])
def test_a_rate_that_the_load_sets_is_no_figure_of_the_server(arrival: str) -> None:
    assert "ms_per_token" in judgements(judged(steady, steady))
    assert "ms_per_token" not in judgements(judged(steady, steady, arrival=arrival))


def test_a_figure_that_a_round_lacks_is_left_out() -> None:
    found = judged(steady, lambda number: run(num_tokens=1) if number == 3 else run())
    assert "itl_mean" not in judgements(found)


def test_what_speaks_against_the_comparison_is_told() -> None:
    cached = judged(
        lambda _: run(cached_tokens=50),
        lambda number: run(num_tokens=9, cached_tokens=number % 2 * 90),
        lag_p99_ns=1e9,
        same=True,
    )
    assert cached.against == (
        "Do not believe B: its client sent too late.",
        "Answers had 6 tokens on average in A and 9 in B.",
        (
            "Both sides are the same model of one endpoint, so B was asked with other prompts than A, whose would be "
            "cached; of `light`'s 864 some repeat."
        ),
        "Of B's prompts 0% to 90% came from the server's cache, round by round: do both sides ask one server?",
    )
