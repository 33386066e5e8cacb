"""What users do to an engine, step by step on the fake runner."""

import pytest

from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, Submit
from headway.core.sampling import SamplingParams
from headway.runner.fake import FakeRunner
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

HOT = SamplingParams(temperature=1.0, seed=5)


def test_a_client_leaves_while_queued() -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_num_seqs=1))
    got = Received()
    submit_all(engine, [make_request("stays", prompt(30), 9, HOT), make_request("leaves", prompt(40), 9)])
    step_checked(engine, got)
    engine.handle(Cancel(request_id="leaves"))
    step_checked(engine, got)
    assert got.finished["leaves"].usage.completion_tokens == 0
    assert got.finished["leaves"].first_scheduled_ns is None
    assert engine.statistics().num_waiting == 0
    run_until_idle(engine, got)
    assert got.of("stays") == run_alone(make_request("stays", prompt(30), 9, HOT)).of("stays")


@pytest.mark.parametrize(
    "steps_before", [1, 3, 6], ids=["at the start of prefill", "in prefill", "mid-stream"]
)
def test_a_client_leaves_while_running(steps_before: int) -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_prefill_tokens=16))
    got = Received()
    engine.handle(Submit(make_request("stays", prompt(10, 3), 30, HOT)))
    step_checked(engine, got)
    alone = engine.statistics().num_free_blocks
    engine.handle(Submit(make_request("leaves", prompt(60), 50)))
    for _ in range(steps_before):
        step_checked(engine, got)
    assert ("leaves", 0) in got.tokens or steps_before < 4
    assert engine.statistics().num_free_blocks < alone
    engine.handle(Cancel(request_id="leaves"))
    step_checked(engine, got)
    assert got.reasons["leaves", 0] == "cancelled"
    assert "leaves" in got.finished
    assert len(engine.block_table("stays")) + engine.statistics().num_free_blocks == 64
    run_until_idle(engine, got)
    assert got.of("stays") == run_alone(make_request("stays", prompt(10, 3), 30, HOT)).of("stays")


def test_the_engine_is_idle_within_two_steps_after_the_last_client_left() -> None:
    for steps_before in range(8):
        engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_prefill_tokens=16))
        got = Received()
        engine.handle(Submit(make_request("r", prompt(60), 50, n=2)))
        for _ in range(steps_before):
            step_checked(engine, got)
        engine.handle(Cancel(request_id="r"))
        step_checked(engine, got)
        assert step_checked(engine, got) is None
        assert_idle(engine)


def test_200_clients_leave_at_once_50_times() -> None:
    engine = make_engine(FakeRunner(num_blocks=200))
    for round_number in range(50):
        got = Received()
        names = [f"{round_number}-{index}" for index in range(200)]
        submit_all(engine, [make_request(name, prompt(24, index), 8) for index, name in enumerate(names)])
        for _ in range(round_number % 3):
            got.take(engine.step())
        for name in names:
            engine.handle(Cancel(request_id=name))
        got.take(engine.step())
        assert engine.step() is None
        assert set(got.finished) == set(names)
        assert_idle(engine)


def test_cancelling_one_queued_request_never_touches_another() -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_num_seqs=1))
    got = Received()
    requests = [make_request(f"r{index}", prompt(20, index), 5, HOT) for index in range(6)]
    submit_all(engine, requests)
    step_checked(engine, got)
    for _ in range(3):
        engine.handle(Cancel(request_id="r3"))
    step_checked(engine, got)
    engine.handle(Cancel(request_id="r3"))
    run_until_idle(engine, got)
    assert got.finished["r3"].usage.prompt_tokens == 20
    assert [name for name, _ in got.reasons] == ["r3", "r0", "r1", "r2", "r4", "r5"]
    for request in requests:
        if request.request_id != "r3":
            assert got.of(request.request_id) == run_alone(request).of(request.request_id)


def test_a_long_prompt_does_not_stall_streams() -> None:
    runner = FakeRunner(num_blocks=400, max_context=8192, keep_steps=True)
    engine = make_engine(runner, limits=SchedulerConfig(max_prefill_tokens=256))
    got = Received()
    streams = [f"s{index}" for index in range(4)]
    submit_all(engine, [make_request(name, prompt(20, i), 60) for i, name in enumerate(streams)])
    step_checked(engine, got)
    engine.handle(Submit(make_request("long", prompt(4_000), 2)))
    steps_with_prompt = 0
    while ("long", 0) not in got.tokens:
        before = {name: len(got.of(name)) for name in streams}
        step_checked(engine, got)
        assert all(len(got.of(name)) == before[name] + 1 for name in streams)
        assert runner.steps is not None
        assert len(runner.steps[-1].tokens) <= 256 + len(streams)
        steps_with_prompt += 1
    assert steps_with_prompt == 16  # 4,000 / 256, rounded up: the budget was used in full
    run_until_idle(engine, got)


def test_a_shared_prefix_is_computed_once() -> None:
    runner = FakeRunner(num_blocks=400, max_context=2048)
    engine = make_engine(runner)
    shared = prompt(1_000)
    first, second = make_request("first", [*shared, 1], 5), make_request("second", [*shared, 2], 5)
    submit_all(engine, [first, second])
    got = run_until_idle(engine)
    assert engine.statistics().prefill_tokens_total == 1_001 + (1_001 - 992)
    assert got.finished["second"].usage.cached_tokens == 992
    assert got.of("first") == run_alone(first).of("first")
    assert got.of("second") == run_alone(second).of("second")


def test_the_second_goes_on_when_the_first_is_cancelled_midway() -> None:
    engine = make_engine(FakeRunner(num_blocks=400, max_context=2048))
    shared = prompt(1_000)
    second = make_request("second", [*shared, 2], 5)
    submit_all(engine, [make_request("first", [*shared, 1], 5), second])
    got = Received()
    for _ in range(2):
        step_checked(engine, got)
    assert engine.block_table("second") == ()
    engine.handle(Cancel(request_id="first"))
    run_until_idle(engine, got)
    assert engine.statistics().prefill_tokens_total == 1_001  # nothing was computed twice
    assert got.finished["second"].usage.cached_tokens == 512
    assert got.of("second") == run_alone(second).of("second")


def test_what_can_never_fit_is_refused_at_once_and_harms_nobody() -> None:
    engine = make_engine(FakeRunner(num_blocks=8, max_context=1024))
    got = Received()
    submit_all(engine, [make_request("fits", prompt(100), 20), make_request("never", prompt(100), 30)])
    step_checked(engine, got)
    error = got.finished["never"].error
    assert error is not None
    assert error.code == "context_length_exceeded"
    assert "130 tokens: 100 in the prompt and 30 for max_tokens" in error.message
    run_until_idle(engine, got)
    assert len(got.of("fits")) == 20


def test_what_only_waits_for_memory_is_served_in_order() -> None:
    engine = make_engine(FakeRunner(num_blocks=8, max_context=1024))
    lengths = [100, 20, 108, 10, 90]
    submit_all(engine, [make_request(f"r{i}", prompt(length, i), 4) for i, length in enumerate(lengths)])
    got = run_until_idle(engine)
    starts = [got.finished[f"r{i}"].first_scheduled_ns for i in range(5)]
    assert [name for name, _ in got.reasons] == ["r0", "r1", "r2", "r3", "r4"]
    assert None not in starts
    assert engine.statistics().preemptions_total == 0


def test_preemption_loses_nothing() -> None:
    engine = make_engine(FakeRunner(num_blocks=10))
    requests = [make_request(f"r{index}", prompt(30, index), 60, HOT) for index in range(4)]
    submit_all(engine, requests)
    got = run_until_idle(engine)
    assert engine.statistics().preemptions_total > 0
    assert got.finished["r0"].num_preemptions == 0  # the first is never preempted for another
    assert got.finished["r3"].num_preemptions > 0
    for request in requests:
        assert got.of(request.request_id) == run_alone(request).of(request.request_id)
        assert got.finished[request.request_id].usage.completion_tokens == 60
