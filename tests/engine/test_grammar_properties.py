"""Masks never cost the same bits: a request with a grammar answers alike alone, in any batch, chunked, preempted or resumed,
and beside it a request without one answers as if it were alone."""

from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine
from headway.engine.grammars import Matcher
from headway.models.grammar import GrammarVocabulary
from support.engine_on_fake import Received, assert_idle, run_until_idle, step_checked
from support.small_grammars import (
    STOPS,
    VOCAB_SIZE,
    VOCABULARY,
    LateGrammars,
    grammar_engine,
    grammar_request,
    matches,
    regex,
)

GRAMMARS = GrammarVocabulary(VOCABULARY, VOCAB_SIZE)
CHOICES: tuple[Grammar | None, ...] = (
    None,
    regex("[ab]{4,9}"),
    regex("(name|true|no)( (name|true|no))*"),
    Grammar(
        kind="json_schema", source='{"type": "array", "items": {"enum": ["name", true, 7]}, "maxItems": 4}'
    ),
    Grammar(kind="lark", source='start: <|mark|> /[xy]/ start | "z"'),
)
SAMPLING = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=1.0, seed=2, presence_penalty=0.5),
)


def compiled(request: Request) -> list[Matcher]:
    assert request.grammar is not None
    matcher = GRAMMARS.compile(request.grammar, request.stop_token_ids)
    resumed = request.token_ids[len(request.token_ids) - request.num_resumed :]
    assert not resumed or matcher.advance(resumed)
    return [matcher, *(matcher.copy() for _ in range(request.n - 1))]


def engine_with(limits: SchedulerConfig | None = None, num_blocks: int = 512) -> tuple[Engine, LateGrammars]:
    grammars = LateGrammars(compiled)
    engine, _ = grammar_engine(grammars, limits=limits, num_blocks=num_blocks, block_size=4)
    return engine, grammars


def alone(request: Request) -> Received:
    engine, grammars = engine_with()
    engine.handle(Submit(request))
    grammars.finish(len(grammars.requests))
    return run_until_idle(engine)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    return [
        grammar_request(
            f"r{number}",
            draw(st.sampled_from(CHOICES)),
            token_ids=draw(st.lists(st.integers(0, 9), min_size=1, max_size=9)),
            max_tokens=draw(st.integers(1, 14)),
            sampling=draw(st.sampled_from(SAMPLING)),
            n=draw(st.sampled_from([1, 1, 2])),
            stop_token_ids=draw(st.sampled_from([STOPS, STOPS[:1], ()])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


LIMITS = st.builds(SchedulerConfig, max_num_seqs=st.integers(1, 6), max_prefill_tokens=st.integers(1, 12))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(work=requests(), limits=LIMITS, num_blocks=st.integers(8, 12), seed=st.integers(0, 99))
def test_any_mix_answers_as_alone(
    work: list[Request], limits: SchedulerConfig, num_blocks: int, seed: int
) -> None:
    random = Random(seed)  # when grammars are done, between which steps
    engine, grammars = engine_with(limits, num_blocks)
    received = Received()
    for request in work:
        engine.handle(Submit(request))
        if random.random() < 0.5:
            step_checked(engine, received)
        grammars.finish(random.randint(0, 2))
    while grammars.requests or engine.has_work:
        grammars.finish(random.randint(0, 1))
        step_checked(engine, received)
    assert_idle(engine)
    for request in work:
        reference = alone(request)
        assert received.finished[request.request_id].error is None
        for choice in range(request.n):
            key = (request.request_id, choice)
            assert received.of(*key) == reference.of(*key)
            assert received.reasons[key] == reference.reasons[key]
            if request.grammar is not None:
                whole = received.reasons[key] == "stop"
                assert matches(GRAMMARS, request.grammar, received.of(*key), whole=whole)
                event("complete" if whole else "cut")
    if any(finished.num_preemptions for finished in received.finished.values()):
        event("preempted")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(work=requests(), cut=st.integers(0, 13))
def test_what_is_resumed_goes_on_as_it_would_have(work: list[Request], cut: int) -> None:
    for request in work:
        whole = alone(request).of(request.request_id)
        if not 0 < cut < len(whole) or request.n > 1:
            continue
        resumed = grammar_request(
            request.request_id,
            request.grammar,
            token_ids=[*request.token_ids, *whole[:cut]],
            num_resumed=cut,
            max_tokens=request.max_tokens - cut,
            sampling=request.sampling,
            stop_token_ids=request.stop_token_ids,
        )
        assert alone(resumed).of(request.request_id) == whole[cut:]
        event("resumed")
