"""Engines end at any step, again and again: what the next ones give is what one engine would have given."""

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import MAX_CHOICES, Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import InlineGrammars, Matcher
from headway.models.grammar import GrammarVocabulary
from headway.runner.fake import FakeRunner
from support.engine_on_fake import make_engine, make_request, prompt, run_until_idle
from support.resuming import run_through
from support.small_grammars import STOPS, VOCAB_SIZE, VOCABULARY, grammar_request, regex

GRAMMARS = GrammarVocabulary(VOCABULARY, VOCAB_SIZE)
SAMPLING = st.sampled_from(
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, seed=1, num_logprobs=2),
        SamplingParams(temperature=1.0, seed=2, presence_penalty=0.5, frequency_penalty=0.2),
        SamplingParams(temperature=0.8, seed=3, repetition_penalty=1.1),
    ]
)
LIMITS = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 6),
    max_prefill_tokens=st.integers(1, 40),
    max_draft_tokens=st.sampled_from([0, 8]),
    prefix_cache=st.booleans(),
)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    return [
        grammar_request(
            f"r{number}",
            draw(
                st.sampled_from([None, None, regex("[ab]{4,9}"), regex("(name|true|no)( (name|true|no))*")])
            ),
            token_ids=draw(st.lists(st.integers(0, 9), min_size=1, max_size=9)),
            max_tokens=draw(st.integers(1, 14)),
            sampling=draw(SAMPLING),
            n=draw(st.sampled_from([1, 2, 3])),
            stop_token_ids=draw(st.sampled_from([STOPS, tuple(range(0, VOCAB_SIZE, 9))])),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


def compiled(request: Request) -> list[Matcher]:
    assert request.grammar is not None
    matcher = GRAMMARS.compile(request.grammar, request.stop_token_ids)
    resumed = request.token_ids[len(request.token_ids) - request.num_resumed :]
    assert not resumed or matcher.advance(resumed)
    return [matcher, *(matcher.copy() for _ in range(request.n - 1))]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    work=requests(),
    limits=LIMITS,
    num_blocks=st.sampled_from([12, 512]),
    lives=st.lists(st.integers(0, 20), min_size=1, max_size=4),
)
def test_however_many_engines_end_the_answers_are_those_of_one(
    work: list[Request], limits: SchedulerConfig, num_blocks: int, lives: list[int]
) -> None:
    def new_engine() -> Engine:
        runner = FakeRunner(num_blocks=num_blocks, block_size=4, vocab_size=VOCAB_SIZE, max_context=4096)
        grammars = InlineGrammars(compiled)
        return Engine(runner, limits, ManualClock(), engine_info("fake", runner), grammars)

    expected = run_through(new_engine, work, ())
    got = run_through(new_engine, work, lives)
    assert got == expected
    event("stopped" if "stop" in expected.reasons.values() else "length only")


def test_some_of_the_choices_have_their_own_numbers() -> None:
    """Choices 2 and 3 of a request for five draw, and are reported, as they would be beside the others."""
    sampling = SamplingParams(temperature=1.0, seed=5)
    whole = make_request("r", prompt(9), 8, sampling, n=5)
    part = msgspec.structs.replace(whole, n=2, first_choice=2)
    engines = [make_engine(FakeRunner(num_blocks=64)) for _ in range(2)]
    for engine, request in zip(engines, (whole, part), strict=True):
        engine.handle(Submit(request))
    expected, got = map(run_until_idle, engines)
    assert len({tuple(expected.of("r", choice)) for choice in range(5)}) == 5
    assert {key: ids for key, ids in expected.tokens.items() if key[1] in (2, 3)} == got.tokens


@pytest.mark.parametrize(("first_choice", "n"), [(-1, 1), (MAX_CHOICES, 1), (MAX_CHOICES - 1, 2)])
def test_choices_have_numbers_that_exist(first_choice: int, n: int) -> None:
    engine = make_engine(FakeRunner(num_blocks=64))
    request = msgspec.structs.replace(make_request("r", [1], n=n), first_choice=first_choice)
    engine.handle(Submit(request))
    error = run_until_idle(engine).finished["r"].error
    assert error is not None
    assert (error.code, error.param) == ("invalid_request", "first_choice")


@pytest.mark.parametrize("resumes", [False, True])
def test_what_was_accepted_once_is_not_refused_for_a_full_queue(resumes: bool) -> None:
    engine = make_engine(
        FakeRunner(num_blocks=64), limits=SchedulerConfig(max_num_seqs=1, max_queued_requests=1)
    )
    for name in ("a", "b"):
        engine.handle(Submit(make_request(name, [1, 2])))
    engine.handle(Submit(msgspec.structs.replace(make_request("c", [1, 2]), resumes=resumes)))
    error = run_until_idle(engine).finished["c"].error
    assert (error is None) == resumes


@pytest.mark.parametrize("resumes", [False, True])
def test_what_was_accepted_once_is_not_refused_for_its_deadline(resumes: bool) -> None:
    engine = make_engine(FakeRunner(num_blocks=64), limits=SchedulerConfig(policy="slo"))
    late = msgspec.structs.replace(make_request("r", [1, 2]), ttft_deadline_ns=0, resumes=resumes)
    engine.handle(Submit(late))
    error = run_until_idle(engine).finished["r"].error
    assert (error is None) == resumes


def test_streams_that_resume_go_before_new_ones_of_their_class() -> None:
    clock = ManualClock()
    limits = SchedulerConfig(policy="slo", max_num_seqs=1)
    engine = make_engine(FakeRunner(num_blocks=64), clock, limits)
    engine.handle(Submit(make_request("runs", [1, 2], 2)))
    engine.step()
    urgent = msgspec.structs.replace(make_request("new", [1, 2], 1), ttft_deadline_ns=10**9)
    engine.handle(Submit(urgent))
    resumed = msgspec.structs.replace(make_request("cut", [1, 2, 3], 1, num_resumed=1), resumes=True)
    engine.handle(Submit(resumed))
    ended = list(run_until_idle(engine).finished)
    assert ended == ["runs", "cut", "new"]
