"""Whole simulated runs: time is exact, the same seed gives the same, and the lab takes the records for its own."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from headway.cli.bench_report import as_json, as_text
from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.lab.exchange import Exchange
from headway.lab.html_report import as_html
from headway.lab.latency import ttft_ns
from headway.lab.raw_file import read_raw, write_raw
from headway.simulator.costs import ServingCost
from headway.simulator.talk import AnswerLength, lengths_of
from support.simulated import MS, run_on, runner_info, service


def arrivals_ms(exchange: Exchange) -> list[float]:
    return [(event.at_ns - exchange.stamps.intended_ns) / MS for event in exchange.answer.events]


def test_tokens_come_when_the_steps_that_drew_them_end() -> None:
    result = run_on(service(lambda step: (10 + len(step.tokens)) * MS), num_requests=1)
    (exchange,) = result.exchanges
    assert exchange.answer.usage is not None
    num_prompt = exchange.answer.usage.prompt_tokens
    assert num_prompt is not None
    first = 10 + num_prompt
    assert arrivals_ms(exchange) == [first, first + 11, first + 22]
    assert exchange.stamps.ended_ns == exchange.answer.events[-1].at_ns


def test_requests_of_one_moment_share_a_step_and_others_wait_for_its_end() -> None:
    together = run_on(service(), arrival="closed:3", num_requests=3)
    assert [arrivals_ms(exchange) for exchange in together.exchanges] == [[10, 20, 30]] * 3
    later = run_on(service(), arrival="constant:250", num_requests=2)
    assert [arrivals_ms(exchange) for exchange in later.exchanges] == [[10, 20, 30], [16, 26, 36]]


def test_what_comes_before_the_engine_delays_the_first_token_alone() -> None:
    slow = service(serving=ServingCost(request_ns=7 * MS, prompt_token_ns=MS))
    (exchange,) = run_on(slow, num_requests=1).exchanges
    assert exchange.answer.usage is not None
    before = 7 + (exchange.answer.usage.prompt_tokens or 0)
    assert arrivals_ms(exchange) == [before + 10, before + 20, before + 30]


def test_a_closed_users_next_request_is_due_when_the_last_has_ended() -> None:
    first, second = run_on(service(), num_requests=2).exchanges
    assert second.stamps.intended_ns == first.stamps.ended_ns


def test_a_later_turn_finds_prompt_and_answer_of_the_turn_before_in_the_cache() -> None:
    result = run_on(service(), workload="multi-turn:3", num_requests=3, output_tokens=40)
    usages = [exchange.answer.usage for exchange in result.exchanges]
    for before, after in pairwise(usages):
        assert before is not None
        assert after is not None
        known = (
            (before.prompt_tokens or 0) + (before.completion_tokens or 0) - 1
        )  # the last token is not computed
        assert after.cached_tokens == known // 16 * 16


def test_answers_are_as_long_as_they_are_said_to_be() -> None:
    lengths = {(0, 1): AnswerLength(5), (1, 1): AnswerLength(4, ends_itself=True)}
    result = run_on(service(), num_requests=3, output_tokens=9, lengths=lengths)
    assert [len(exchange.answer.events) for exchange in result.exchanges] == [5, 3, 9]
    assert [exchange.answer.finish_reason for exchange in result.exchanges] == ["length", "stop", "length"]
    again = lengths_of(result.exchanges)
    assert {key: again[key] for key in lengths} == lengths


def test_what_the_engine_refuses_is_a_failure_with_its_status() -> None:
    small = service(scheduler=SchedulerConfig(policy="fcfs", max_num_seqs=1, max_queued_requests=1))
    result = run_on(small, arrival="closed:4", num_requests=4)
    assert result.summary.failures == {"refused_503": 3}  # one waits, the others came before any step
    refused = [exchange.answer.failure for exchange in result.exchanges if not exchange.ok]
    assert all(failure is not None and failure.retry_after_s for failure in refused)


def test_a_workload_that_does_not_fit_the_model_is_refused_before_anything() -> None:
    with pytest.raises(ConfigError, match="does not fit the model's 128"):
        run_on(service(info=runner_info(max_context=128)), workload="context:512")


@pytest.mark.parametrize("route", ["round-robin", "least-loaded"])
def test_replicas_share_requests_and_a_conversation_stays_where_it_is(route: str) -> None:
    alone = run_on(service(), arrival="closed:4", num_requests=8, output_tokens=8)
    shared = run_on(
        service(lambda step: 10 * MS * len(step.context_lens), num_replicas=4, route=route),  # type: ignore[arg-type]
        arrival="closed:4",
        num_requests=8,
        output_tokens=8,
    )
    assert shared.summary.e2e.successes.percentiles["p50"] == alone.summary.e2e.successes.percentiles["p50"]
    talks = run_on(
        service(num_replicas=3, route=route),  # type: ignore[arg-type]
        workload="multi-turn:3",
        arrival="closed:3",
        num_requests=9,
    )
    assert all(exchange.cached_tokens for exchange in talks.exchanges if exchange.turn > 1)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    def run(seed: int) -> tuple[tuple[Exchange, ...], str]:
        result = run_on(
            service(lambda step: MS * (5 + len(step.tokens)), num_replicas=2),
            workload="mixed:light=0.5,multi-turn:2=0.5",
            arrival="poisson:50",
            num_requests=40,
            seed=seed,
        )
        return result.exchanges, json.dumps(as_json(result))

    assert run(1) == run(1)
    assert run(1)[0] != run(2)[0]


def test_a_ladder_finds_the_rate_that_steps_allow() -> None:
    # One sequence at a time, 20 ms each: 50 a second, if they never met.
    one = SchedulerConfig(policy="fcfs", max_num_seqs=1, itl_target_s=None, max_draft_tokens=0)
    result = run_on(service(scheduler=one), arrival="ladder", num_requests=100, output_tokens=2)
    assert result.ladder is not None
    assert result.ladder.finding is not None
    kept = result.ladder.finding.kept
    assert kept is not None
    assert 20 < kept.rate < 50


def test_the_labs_reports_and_files_take_it_and_say_that_it_is_simulated(tmp_path: Path) -> None:
    result = run_on(service(), workload="multi-turn:2", arrival="poisson:5", num_requests=30)
    assert as_text(result).startswith("Simulated, not measured: model on a machine.")
    assert as_json(result)["endpoint"] == "simulated test"
    page = as_html(result)
    assert "Simulated, not measured: model on a machine." in page
    assert "The measuring program kept up" not in page
    write_raw(tmp_path / "run.parquet", result)
    saved = read_raw(tmp_path / "run.parquet")
    assert [ttft_ns(exchange) for exchange in saved.exchanges] == [
        ttft_ns(exchange) for exchange in result.exchanges
    ]
    assert saved.asked["endpoint"]["host"] == "simulated test"
