import logging
from array import array

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.core.messages import Cancel, Drain, Submit
from headway.core.sampling import SamplingParams
from headway.engine.step_builder import build_step
from headway.runner.fake import DrawnRow, FakeRunner
from headway.runner.step import Step, StepResult
from support.engine_on_fake import (
    Received,
    assert_idle,
    make_engine,
    make_request,
    prompt,
    run_alone,
    run_until_idle,
    step_checked,
    submit_all,
)

HOT = SamplingParams(temperature=1.0, seed=11)


def test_an_idle_engine_has_no_step() -> None:
    engine = make_engine(FakeRunner())
    assert not engine.has_work
    assert engine.step() is None


def test_a_request_gets_its_tokens_and_one_terminal_event() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("r", prompt(20), max_tokens=5)))
    got = run_until_idle(engine)
    assert len(got.of("r")) == 5
    assert got.reasons == {("r", 0): "length"}
    usage = got.finished["r"].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (20, 5, 0)
    assert got.finished["r"].error is None
    assert_idle(engine)


def test_times_follow_the_stages() -> None:
    clock = ManualClock(1_000)
    runner = FakeRunner(clock=clock, cost_ns=lambda _: 100)
    engine = make_engine(runner, clock, SchedulerConfig(max_prefill_tokens=10))
    engine.handle(Submit(make_request("r", prompt(20), max_tokens=3)))
    clock.advance(5)
    finished = run_until_idle(engine).finished["r"]
    assert finished.queued_ns == 1_000
    assert finished.first_scheduled_ns == 1_005
    assert finished.first_token_ns == 1_205
    assert finished.finished_ns == 1_405


def test_statistics_count_what_was_computed() -> None:
    clock = ManualClock()
    runner = FakeRunner(clock=clock, cost_ns=lambda _: 100)
    engine = make_engine(runner, clock)
    engine.handle(Submit(make_request("a", prompt(40), max_tokens=4)))
    run_until_idle(engine)
    engine.handle(Submit(make_request("b", prompt(40), max_tokens=4)))
    run_until_idle(engine)
    stats = engine.statistics()
    assert stats.steps_total == 8
    assert stats.prefill_tokens_total == 40 + 8
    assert stats.decode_tokens_total == 6
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total) == (80, 32)
    assert (stats.step_ns, stats.runner_ns) == (100, 100)
    assert stats.num_cached_blocks == 2


def test_a_stop_token_ends_a_choice_and_is_not_delivered() -> None:
    runner = FakeRunner(script=lambda row: 500 if row.position == 22 else 7)
    engine = make_engine(runner)
    engine.handle(Submit(make_request("r", prompt(20), max_tokens=9, stop_token_ids=(3, 500))))
    got = run_until_idle(engine)
    assert got.of("r") == [7, 7]
    assert got.reasons == {("r", 0): "stop"}
    assert got.finished["r"].usage.completion_tokens == 2


def test_a_stop_token_may_come_first() -> None:
    engine = make_engine(FakeRunner(script=lambda _: 500))
    engine.handle(Submit(make_request("r", prompt(20), stop_token_ids=(500,))))
    got = run_until_idle(engine)
    assert got.tokens == {}
    assert got.finished["r"].first_token_ns is None
    assert got.reasons == {("r", 0): "stop"}


def test_logprobs_come_with_their_tokens() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("r", prompt(5), 3, SamplingParams(temperature=0.0, num_logprobs=2))))
    engine.handle(Submit(make_request("plain", prompt(6), 3)))
    got = run_until_idle(engine)
    assert [entry.token_id for entry in got.logprobs["r", 0]] == got.of("r")
    assert got.logprobs["plain", 0] == []


def test_choices_share_the_prompt_and_differ() -> None:
    runner = FakeRunner(keep_steps=True)
    engine = make_engine(runner, limits=SchedulerConfig(max_prefill_tokens=1000))
    engine.handle(Submit(make_request("r", prompt(100), 6, HOT, n=3)))
    step_checked(engine, Received())
    step_checked(engine, Received())
    tables = [engine.block_table("r", choice) for choice in range(3)]
    assert tables[0][:6] == tables[1][:6] == tables[2][:6]
    assert len({table[6] for table in tables}) == 3
    got = run_until_idle(engine)
    assert runner.steps is not None
    assert [len(step.tokens) for step in runner.steps[:2]] == [100, 1 + 4 + 4]
    assert got.finished["r"].usage.cached_tokens == 0
    assert got.finished["r"].usage.completion_tokens == 18


def test_each_choice_is_the_one_it_is_alone() -> None:
    together = run_alone(make_request("r", prompt(40), 6, HOT, n=3))
    assert len({tuple(together.of("r", choice)) for choice in range(3)}) == 3
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("r", prompt(40), 6, HOT, n=3)))
    engine.handle(Cancel(request_id="r", choice=0))
    engine.handle(Cancel(request_id="r", choice=1))
    assert run_until_idle(engine).of("r", 2) == together.of("r", 2)


def test_cached_tokens_are_those_of_the_first_pass() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("a", prompt(50))))
    run_until_idle(engine)
    engine.handle(Submit(make_request("b", prompt(50), n=2)))
    assert run_until_idle(engine).finished["b"].usage.cached_tokens == 48


def test_generated_blocks_are_shared_with_the_next_turn() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("a", prompt(20), 30)))
    answer = run_until_idle(engine).of("a")
    engine.handle(Submit(make_request("b", [*prompt(20), *answer, 1, 2, 3])))
    assert run_until_idle(engine).finished["b"].usage.cached_tokens == 48


def test_salts_do_not_share() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("a", prompt(50), salt="one")))
    run_until_idle(engine)
    engine.handle(Submit(make_request("b", prompt(50), salt="two")))
    assert run_until_idle(engine).finished["b"].usage.cached_tokens == 0


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=0.0),
        HOT,
        SamplingParams(temperature=0.7, seed=3, presence_penalty=0.5, frequency_penalty=0.1),
        SamplingParams(temperature=0.0, repetition_penalty=1.2, presence_penalty=0.3),
    ],
)
def test_a_resumed_request_goes_on_as_if_never_interrupted(sampling: SamplingParams) -> None:
    whole = run_alone(make_request("r", prompt(30), 20, sampling)).of("r")
    resumed = make_request("r", [*prompt(30), *whole[:9]], 11, sampling, num_resumed=9)
    assert run_alone(resumed).of("r") == whole[9:]


def test_choices_are_cancelled_one_by_one() -> None:
    engine = make_engine(FakeRunner())
    got = Received()
    engine.handle(Submit(make_request("r", prompt(10), 50, HOT, n=2)))
    step_checked(engine, got)
    engine.handle(Cancel(request_id="r", choice=1, reason="stop"))
    step_checked(engine, got)
    assert got.reasons == {("r", 1): "stop"}
    assert not got.finished
    engine.handle(Cancel(request_id="r"))
    run_until_idle(engine, got)
    assert got.reasons == {("r", 1): "stop", ("r", 0): "cancelled"}
    assert got.finished["r"].usage.completion_tokens == 3
    assert_idle(engine)


def test_a_cancel_of_nothing_is_ignored() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("r", prompt(10))))
    engine.handle(Cancel(request_id="other"))
    engine.handle(Cancel(request_id="r", choice=5))
    got = run_until_idle(engine)
    engine.handle(Cancel(request_id="r"))
    assert not engine.has_work
    assert got.reasons == {("r", 0): "length"}


def test_a_refusal_is_a_terminal_event_without_choices() -> None:
    engine = make_engine(FakeRunner(max_context=32))
    engine.handle(Submit(make_request("r", prompt(30), max_tokens=3)))
    got = run_until_idle(engine)
    error = got.finished["r"].error
    assert error is not None
    assert error.code == "context_length_exceeded"
    assert not got.reasons
    assert_idle(engine)


def test_a_full_queue_refuses_with_a_wait() -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_queued_requests=2))
    submit_all(engine, [make_request(f"r{i}", prompt(5, i)) for i in range(3)])
    got = run_until_idle(engine)
    error = got.finished["r2"].error
    assert error is not None
    assert error.code == "queue_full"
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1
    assert got.finished["r0"].error is None


def test_only_what_has_not_started_counts_as_queued() -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_queued_requests=1))
    got = Received()
    engine.handle(Submit(make_request("a", prompt(5), 50)))
    step_checked(engine, got)
    engine.handle(Submit(make_request("b", prompt(6), 50)))
    engine.handle(Cancel(request_id="b"))
    engine.handle(Submit(make_request("c", prompt(7), 50)))
    run_until_idle(engine, got)
    assert all(finished.error is None for finished in got.finished.values())


def test_every_choice_counts_in_the_queue_until_it_runs() -> None:
    limits = SchedulerConfig(max_num_seqs=2, max_queued_requests=3)
    engine = make_engine(FakeRunner(), limits=limits)
    got = Received()
    engine.handle(Submit(make_request("a", prompt(5), 3, n=5)))
    engine.handle(Submit(make_request("b", prompt(6), 3)))  # five wait
    step_checked(engine, got)
    engine.handle(Submit(make_request("c", prompt(7), 3)))  # three do
    engine.handle(Cancel(request_id="a", choice=4))
    engine.handle(Submit(make_request("d", prompt(8), 3)))  # two
    run_until_idle(engine, got)
    refused = {name for name, finished in got.finished.items() if finished.error is not None}
    assert refused == {"b", "c"}
    assert_idle(engine)


def test_the_expected_wait_follows_the_measured_speed() -> None:
    clock = ManualClock()
    runner = FakeRunner(clock=clock, cost_ns=lambda step: 10_000_000 * len(step.tokens))
    engine = make_engine(runner, clock, SchedulerConfig(max_num_seqs=1, max_queued_requests=2))
    got = Received()
    engine.handle(Submit(make_request("a", prompt(100), 50)))
    step_checked(engine, got)
    submit_all(engine, [make_request(name, prompt(300)) for name in "bcd"])
    step_checked(engine, got)
    error = got.finished["d"].error
    assert error is not None
    assert error.retry_after_s == 6.0


def test_a_draining_engine_finishes_what_it_has() -> None:
    engine = make_engine(FakeRunner())
    engine.handle(Submit(make_request("a", prompt(5))))
    engine.handle(Drain())
    engine.handle(Submit(make_request("b", prompt(5))))
    got = run_until_idle(engine)
    assert engine.is_draining
    assert len(got.of("a")) == 4
    error = got.finished["b"].error
    assert error is not None
    assert error.code == "draining"


def test_a_second_request_under_a_used_id_does_not_harm_the_first(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(FakeRunner())
    got = Received()
    engine.handle(Submit(make_request("r", prompt(20), 6)))
    step_checked(engine, got)
    with caplog.at_level(logging.ERROR):
        engine.handle(Submit(make_request("r", prompt(9), 2)))
    assert "in use" in caplog.text
    run_until_idle(engine, got)
    assert got.of("r") == run_alone(make_request("r", prompt(20), 6)).of("r")
    engine.handle(Submit(make_request("r", prompt(9), 2)))  # free again
    assert len(run_until_idle(engine).of("r")) == 2


def test_a_failing_runner_ends_the_requests_of_that_step_only(caplog: pytest.LogCaptureFixture) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, limits=SchedulerConfig(max_num_seqs=2))
    got = Received()
    submit_all(engine, [make_request("a", prompt(10), 9, HOT, n=3), make_request("b", prompt(40, 1), 9)])
    step_checked(engine, got)
    runner.fail_next(RuntimeError("broken"))
    step_checked(engine, got)
    assert got.reasons == {("a", choice): "error" for choice in range(3)}  # the third waited
    error = got.finished["a"].error
    assert error is not None
    assert error.code == "internal_error"
    assert "broken" not in error.message
    assert "broken" in caplog.text
    run_until_idle(engine, got)
    assert got.of("b") == run_alone(make_request("b", prompt(40, 1), 9)).of("b")
    assert_idle(engine)


def test_what_a_failed_step_wrote_is_not_reused() -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    runner.fail_next(RuntimeError("broken"))
    engine.handle(Submit(make_request("a", prompt(40))))
    run_until_idle(engine)
    engine.handle(Submit(make_request("b", prompt(40))))
    got = run_until_idle(engine)
    assert got.finished["b"].usage.cached_tokens == 0
    assert got.of("b") == run_alone(make_request("b", prompt(40))).of("b")


class ForgetfulRunner(FakeRunner):
    """Loses the last token."""

    def execute(self, step: Step) -> StepResult:
        result = super().execute(step)
        return StepResult(tokens=result.tokens[:-1])


def test_a_runner_that_loses_tokens_is_a_failure_too() -> None:
    engine = make_engine(ForgetfulRunner())
    engine.handle(Submit(make_request("a", prompt(40))))
    error = run_until_idle(engine).finished["a"].error
    assert error is not None
    assert error.code == "internal_error"
    assert_idle(engine)


def test_a_request_without_a_drawable_token_ends_alone() -> None:
    engine = make_engine(FakeRunner(script=lambda row: -1 if row.seed == 5 and row.position == 12 else None))
    doomed = SamplingParams(temperature=1.0, seed=5)
    spared = make_request("spared", prompt(9), 6, HOT)
    submit_all(engine, [make_request("doomed", prompt(10), 6, doomed, n=2), spared])
    got = run_until_idle(engine)
    error = got.finished["doomed"].error
    assert error is not None
    assert "no token" in error.message
    assert got.finished["doomed"].usage.completion_tokens == 4
    assert got.of("spared") == run_alone(spared).of("spared")
    assert_idle(engine)


def test_a_failing_choice_ends_another_that_is_in_prefill() -> None:
    runner = FakeRunner(script=lambda _: -1, keep_steps=True)
    engine = make_engine(runner, limits=SchedulerConfig(max_prefill_tokens=8))
    engine.handle(Submit(make_request("doomed", prompt(30), n=2)))
    got = run_until_idle(engine)
    assert runner.steps is not None
    assert len(runner.steps[-1].context_lens) == 2
    assert got.reasons == {("doomed", 0): "error", ("doomed", 1): "error"}
    assert_idle(engine)


def test_steps_tell_the_runner_what_sampling_needs() -> None:
    runner = FakeRunner(keep_steps=True, script=lambda row: row.position)
    engine = make_engine(runner)
    penal = SamplingParams(
        temperature=0.5, top_k=4, top_p=0.5, min_p=0.25, frequency_penalty=0.5, seed=2**64 - 1, num_logprobs=0
    )
    biased = msgspec.structs.replace(HOT, logit_bias=((3, -1.0), (4, 2.0)))
    submit_all(
        engine,
        [
            make_request("a", [1, 2, 3], 3, penal, num_resumed=2),
            make_request("b", [4, 5], 3, biased),
        ],
    )
    run_until_idle(engine)
    assert runner.steps is not None
    step = runner.steps[1]
    batch = step.sampling
    assert batch is not None
    assert list(step.tokens) == [3, 2]
    assert list(step.positions) == [3, 2]
    assert list(step.context_lens) == [3, 2]
    assert list(step.output_rows) == [0, 1]
    assert list(batch.positions) == [4, 3]
    assert list(batch.history) == [1, 2, 3, 3]
    assert list(batch.history_starts) == [0, 4, 4]
    assert list(batch.history_prompt_lens) == [1, 0]
    assert list(batch.bias_starts) == [0, 0, 2]
    assert list(batch.bias_ids) == [3, 4]
    assert list(batch.bias_values) == [-1.0, 2.0]
    assert list(batch.num_logprobs) == [0, -1]
    assert list(batch.top_k) == [4, 0]
    assert list(batch.seeds) == [2**64 - 1, 11]
    assert list(batch.mask_rows) == [-1, -1]


def test_a_step_without_draws_has_no_sampling() -> None:
    assert build_step([]).sampling is None
    assert build_step([]).sequence_starts == array("i", [0])


def test_scripts_follow_positions() -> None:
    def script(row: DrawnRow) -> int:
        return row.tokens[-1] + 1

    engine = make_engine(FakeRunner(script=script))
    engine.handle(Submit(make_request("r", [5], 4)))
    assert run_until_idle(engine).of("r") == [6, 7, 8, 9]


@pytest.mark.parametrize("limits", [SchedulerConfig(max_num_seqs=0), SchedulerConfig(max_prefill_tokens=0)])
def test_limits_under_which_nothing_runs_are_refused(limits: SchedulerConfig) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        make_engine(FakeRunner(), limits=limits)
