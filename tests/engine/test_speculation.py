"""Speculation in the engine, on a fake model that mostly copies: it changes the number of steps, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.core.messages import Cancel, Submit, TokenDelta
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.runner.fake import FakeRunner
from headway.runner.step import Step, StepResult
from support.copying import WITH, WITHOUT, answered, assert_same_answers, copying, copying_engine
from support.engine_on_fake import (
    Received,
    assert_idle,
    make_engine,
    make_request,
    prompt,
    run_until_idle,
    step_checked,
    submit_all,
)

GREEDY = SamplingParams(temperature=0.0)
SAMPLING = [
    GREEDY,
    SamplingParams(temperature=0.8, seed=3),
    SamplingParams(temperature=1.0, seed=4, repetition_penalty=1.2),
    SamplingParams(temperature=1.0, seed=5, presence_penalty=0.5, frequency_penalty=0.2),
    SamplingParams(temperature=0.7, seed=6, logit_bias=((1, -100.0),)),
    SamplingParams(temperature=0.7, seed=7, num_logprobs=2, top_k=3),
]


@pytest.mark.parametrize("sampling", SAMPLING)
def test_answers_are_the_same_in_fewer_steps(sampling: SamplingParams) -> None:
    request = make_request("r", prompt(40) * 2, 60, sampling, n=2)
    steps = []
    for limits in (WITHOUT, WITH):
        engine, _ = copying_engine(limits)
        engine.handle(Submit(request))
        steps.append((run_until_idle(engine), engine.statistics()))
    (expected, slow), (got, fast) = steps
    assert_same_answers(got, expected)
    assert len(got.of("r", 1)) == 60
    assert fast.steps_total < 0.6 * slow.steps_total
    assert fast.accepted_tokens_total <= fast.drafted_tokens_total
    assert fast.decode_tokens_total == slow.decode_tokens_total
    assert slow.drafted_tokens_total == 0


def test_each_token_of_a_step_has_its_log_probabilities() -> None:
    request = make_request("r", prompt(40), 30, SamplingParams(temperature=0.0, num_logprobs=2))
    plain = make_request("plain", prompt(40, 3), 30)
    engine, _ = copying_engine()
    submit_all(engine, [request, plain])
    deltas: list[TokenDelta] = []
    while (outputs := engine.step()) is not None:
        deltas += outputs.deltas
    assert max(len(delta.token_ids) for delta in deltas) > 4
    for delta in deltas:
        scored = tuple(entry.token_id for entry in delta.logprobs)
        assert scored == (delta.token_ids if delta.request_id == "r" else ())


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    return [
        make_request(
            f"r{number}",
            draw(st.lists(st.integers(0, 2), min_size=1, max_size=20)) * draw(st.sampled_from([1, 2])),
            draw(st.sampled_from([1, 2, 9, 30])),
            draw(st.sampled_from(SAMPLING)),
            n=draw(st.sampled_from([1, 1, 2])),
            stop_token_ids=draw(st.sampled_from([(), (), (2,)])),
            salt=draw(st.sampled_from(["", "other"])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    work=requests(),
    max_num_seqs=st.integers(1, 6),
    max_prefill_tokens=st.integers(1, 30),
    max_draft_tokens=st.integers(1, 20),
    num_blocks=st.integers(18, 30),
    pauses=st.lists(st.integers(0, 6), min_size=6, max_size=6),
    cancelled=st.one_of(st.none(), st.integers(0, 20)),
)
def test_any_mix_answers_as_without_speculation(
    work: list[Request],
    max_num_seqs: int,
    max_prefill_tokens: int,
    max_draft_tokens: int,
    num_blocks: int,
    pauses: list[int],
    cancelled: int | None,
) -> None:
    """With three words in the vocabulary all repeats, and drafts are often wrong."""
    limits = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_prefill_tokens=max_prefill_tokens,
        max_draft_tokens=max_draft_tokens,
    )
    engine, _ = copying_engine(limits, num_blocks=num_blocks, vocab_size=3)
    got = Received()
    for request, pause in zip(work, pauses, strict=False):
        engine.handle(Submit(request))
        for _ in range(pause):
            step_checked(engine, got)
    if cancelled is not None:
        for _ in range(cancelled):
            step_checked(engine, got)
        engine.handle(Cancel(request_id="r0", choice=0))
    run_until_idle(engine, got)
    assert_idle(engine)
    stats = engine.statistics()
    event(f"accepted: {stats.accepted_tokens_total > 0}, preempted: {stats.preemptions_total > 0}")
    expected = answered(work, WITHOUT, vocab_size=3)
    for key, tokens in expected.tokens.items():
        if got.reasons[key] == "cancelled":
            assert got.of(*key) == tokens[: len(got.of(*key))]
        else:
            assert got.of(*key) == tokens
            assert got.logprobs[key] == expected.logprobs[key]
            assert got.reasons[key] == expected.reasons[key]


def test_a_stop_token_within_a_run_ends_it_there() -> None:
    source = prompt(40)
    for stop in source[20:30]:
        request = make_request("r", [*source, *source[:3]], 60, stop_token_ids=(stop,))
        got = answered([request], WITH)
        assert_same_answers(got, answered([request], WITHOUT))
        assert stop not in got.of("r")


@pytest.mark.parametrize("max_tokens", range(1, 25))
def test_the_limit_is_met_exactly(max_tokens: int) -> None:
    request = make_request("r", prompt(40) * 2, max_tokens)
    engine, runner = copying_engine()
    engine.handle(Submit(request))
    got = run_until_idle(engine)
    assert len(got.of("r")) == max_tokens
    assert got.reasons["r", 0] == "length"
    assert got.finished["r"].usage.completion_tokens == max_tokens
    assert runner.steps is not None
    assert max(step.positions[-1] for step in runner.steps) <= 80 + max_tokens - 2


def test_drafts_stay_within_the_context() -> None:
    runner = FakeRunner(block_size=4, num_blocks=64, max_context=100, script=copying)
    engine = make_engine(runner, limits=WITH)
    engine.handle(Submit(make_request("r", prompt(40) * 2, 20)))
    assert len(run_until_idle(engine).of("r")) == 20


def test_little_memory_preempts_nobody_for_a_draft() -> None:
    """Without drafts this memory is just enough."""
    work = [make_request(f"r{i}", prompt(20, i) * 2, 24) for i in range(3)]
    for limits in (WITHOUT, WITH):
        engine, _ = copying_engine(limits, num_blocks=3 * 16)
        submit_all(engine, work)
        run_until_idle(engine)
        assert engine.statistics().preemptions_total == 0


def test_a_wrong_draft_leaves_no_block_behind() -> None:
    engine, _ = copying_engine()
    engine.handle(Submit(make_request("r", prompt(40), 200, SamplingParams(temperature=1.0, seed=8))))
    got = Received()
    for _ in range(40):
        outputs = step_checked(engine, got)
        if outputs is not None and engine.has_work and got.of("r"):
            num_computed = 40 + len(got.of("r")) - 1
            assert len(engine.block_table("r")) == -(-num_computed // 4)


def test_what_speculation_computed_is_found_in_the_cache() -> None:
    answer = answered([make_request("r", prompt(40) * 2, 40)], WITHOUT).of("r")
    engine, _ = copying_engine()
    engine.handle(Submit(make_request("r", prompt(40) * 2, 40)))
    run_until_idle(engine)
    assert engine.statistics().accepted_tokens_total > 20
    turn = [*prompt(40) * 2, *answer, 9, 9]
    engine.handle(Submit(make_request("next", turn, 20)))
    got = run_until_idle(engine)
    assert got.finished["next"].usage.cached_tokens == (80 + 39) // 4 * 4
    assert got.of("next") == answered([make_request("next", turn, 20)], WITHOUT).of("next")


def test_a_failing_runner_fails_a_step_with_drafts_like_any_other() -> None:
    engine, runner = copying_engine()
    submit_all(engine, [make_request("r", prompt(40) * 2, 60), make_request("s", prompt(30, 2) * 2, 60)])
    got = Received()
    while engine.statistics().accepted_tokens_total == 0:
        step_checked(engine, got)
    runner.fail_next(RuntimeError("broken"))
    step_checked(engine, got)
    assert {name: one.error is not None for name, one in got.finished.items()} == {"r": True, "s": True}
    assert_idle(engine)
    engine.handle(Submit(make_request("r", prompt(40) * 2, 60)))
    expected = answered([make_request("r", prompt(40) * 2, 60)], WITHOUT)
    assert run_until_idle(engine).of("r") == expected.of("r")


class NumbingRunner(FakeRunner):
    """Draws no token at one position, as where no logit is a number."""

    numb_at = 60

    def execute(self, step: Step) -> StepResult:
        result = super().execute(step)
        assert step.sampling is not None or not result.tokens
        if step.sampling is None:
            return result
        positions = step.sampling.positions
        return replace(
            result,
            tokens=[
                -1 if at == self.numb_at else token
                for at, token in zip(positions, result.tokens, strict=True)
            ],
        )


@pytest.mark.parametrize("numb_at", range(50, 62))
def test_a_draw_without_a_token_fails_the_request_after_what_came_before(numb_at: int) -> None:
    runner = NumbingRunner(block_size=4, script=copying)
    runner.numb_at = numb_at
    engine = make_engine(runner, limits=WITH)
    request = make_request("r", prompt(20) * 2, 60)
    engine.handle(Submit(request))
    got = run_until_idle(engine)
    assert got.of("r") == answered([request], WITHOUT).of("r")[: numb_at - 40]
    assert got.finished["r"].error is not None


def in_rows(step: Step) -> int:
    """Take 10 ms, and 4 ms more for each row: no draft pays in a large batch."""
    return 10_000_000 + 4_000_000 * len(step.tokens)


def flat(step: Step) -> int:
    """Take 10 ms, whatever the step carries."""
    return 10_000_000 + 0 * len(step.tokens)


@pytest.mark.parametrize(
    ("cost_ns", "num_seqs", "drafts"), [(in_rows, 12, False), (flat, 12, True), (in_rows, 1, True)]
)
def test_drafts_end_where_rows_cost_more_than_they_bring(
    cost_ns: Callable[[Step], int], num_seqs: int, drafts: bool
) -> None:
    clock = ManualClock()
    runner = FakeRunner(
        block_size=4, num_blocks=2048, max_context=8192, script=copying, clock=clock, cost_ns=cost_ns
    )
    engine = make_engine(runner, clock, WITH)
    submit_all(engine, [make_request(f"r{i}", prompt(20, i) * 2, 300) for i in range(num_seqs)])
    got = Received()
    for _ in range(30):
        step_checked(engine, got)
    before = engine.statistics().drafted_tokens_total
    for _ in range(10):
        step_checked(engine, got)
    assert (engine.statistics().drafted_tokens_total - before > 10) == drafts


def test_nothing_is_drafted_where_nothing_is_accepted() -> None:
    """Seeded noise over three words: what occurred before says nothing of what comes next."""
    engine = make_engine(
        FakeRunner(vocab_size=64, block_size=4, num_blocks=512, max_context=4096), limits=WITH
    )
    engine.handle(Submit(make_request("r", [i % 64 for i in range(200)], 800, SamplingParams(seed=9))))
    run_until_idle(engine)
    stats = engine.statistics()
    assert stats.drafted_tokens_total < 0.05 * stats.decode_tokens_total


def test_a_text_to_embed_and_a_negative_setting() -> None:
    engine, _ = copying_engine()
    engine.handle(Submit(make_request("r", prompt(40) * 2, 1, pooling="mean")))
    assert run_until_idle(engine).reasons["r", 0] == "stop"
    assert engine.statistics().drafted_tokens_total == 0
    with pytest.raises(ConfigError, match="max_draft_tokens"):
        copying_engine(msgspec.structs.replace(WITH, max_draft_tokens=-1))
