"""Requests with a grammar in the engine: compiled beside it, masked token by token, ended where the grammar ends."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly

import pytest

from headway.core.config import SchedulerConfig
from headway.core.errors import InvalidRequest
from headway.core.messages import Cancel, Drain, StepOutputs, Submit
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.compiling import MAX_COMPILED_AHEAD
from headway.engine.frames import FrameDecoder, FrameEncoder, FromWorker
from headway.engine.grammars import GrammarThread, InlineGrammars, Matcher
from headway.engine.sequence import Sequence
from headway.engine.service import run_engine
from headway.engine.transport import EngineChannel
from headway.kv.blocks import KvBlocks
from headway.models.grammar import GrammarVocabulary
from headway.models.grammar_compiler import GrammarCompiler
from support.engine_on_fake import Received, assert_idle, run_until_idle, step_checked
from support.small_grammars import (
    VOCAB_SIZE,
    VOCABULARY,
    LateGrammars,
    grammar_engine,
    grammar_request,
    matches,
    regex,
)
from support.small_vocabulary import END

JSON = Grammar(
    kind="json_schema", source='{"type": "array", "items": {"enum": ["name", true, 1]}, "maxItems": 5}'
)


@pytest.fixture(scope="module")
def vocabulary() -> GrammarVocabulary:
    return GrammarVocabulary(VOCABULARY, VOCAB_SIZE)


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(lambda: VOCABULARY, VOCAB_SIZE)
    yield made
    made.close()


def run(compiler: GrammarCompiler, *requests: Request) -> Received:
    engine, _ = grammar_engine(InlineGrammars(compiler))
    for request in requests:
        engine.handle(Submit(request))
    received = run_until_idle(engine)
    assert_idle(engine)
    return received


def test_every_choice_of_its_own_matches(compiler: GrammarCompiler, vocabulary: GrammarVocabulary) -> None:
    received = run(compiler, grammar_request("r", JSON, n=8, max_tokens=60))
    answers = [received.of("r", choice) for choice in range(8)]
    assert len({tuple(answer) for answer in answers}) > 1
    assert all(matches(vocabulary, JSON, answer, whole=True) for answer in answers)
    assert set(received.reasons.values()) == {"stop"}
    assert received.finished["r"].error is None


def test_a_complete_answer_ends_without_another_draw(compiler: GrammarCompiler) -> None:
    engine, runner = grammar_engine(InlineGrammars(compiler))
    engine.handle(Submit(grammar_request("r", regex("[ab]{3}"), max_tokens=9)))
    received = run_until_idle(engine)
    assert len(received.of("r")) == 3
    assert received.reasons["r", 0] == "stop"
    assert received.finished["r"].usage.completion_tokens == 3
    assert runner.steps is not None
    assert sum(len(step.output_rows) for step in runner.steps) == 3


def test_a_complete_answer_is_a_stop_even_with_its_last_token(compiler: GrammarCompiler) -> None:
    received = run(
        compiler,
        grammar_request("fits", regex("[ab]{3}"), max_tokens=3),
        grammar_request("cut", regex("[ab]{3}"), max_tokens=2),
    )
    assert received.reasons == {("fits", 0): "stop", ("cut", 0): "length"}


def test_where_it_may_end_the_end_is_drawn_like_any_token(compiler: GrammarCompiler) -> None:
    requests = [
        grammar_request(f"r{seed}", regex("a*"), sampling=SamplingParams(temperature=1.0, seed=seed))
        for seed in range(12)
    ]
    received = run(compiler, *requests)
    lengths = {len(received.of(request.request_id)) for request in requests}
    assert len(lengths) > 2
    assert all(set(received.of(r.request_id)) <= set(VOCABULARY.encode("a")) for r in requests)
    assert "stop" in received.reasons.values()


def test_without_ends_it_goes_on_as_long_as_the_grammar_does(compiler: GrammarCompiler) -> None:
    received = run(
        compiler,
        grammar_request("endless", regex("a*"), stop_token_ids=()),
        grammar_request("bounded", regex("a{0,3}"), stop_token_ids=()),
        grammar_request("empty", regex(""), stop_token_ids=()),
    )
    assert [len(received.of(name)) for name in ("endless", "bounded", "empty")] == [20, 3, 0]
    assert [received.reasons[name, 0] for name in ("endless", "bounded", "empty")] == [
        "length",
        "stop",
        "stop",
    ]


def test_only_the_ends_of_the_request_end_it(compiler: GrammarCompiler) -> None:
    letter = VOCABULARY.encode("b")[0]
    for seed in range(6):
        sampling = SamplingParams(temperature=1.0, seed=seed)
        request = grammar_request("r", regex("a+b?"), sampling=sampling, stop_token_ids=(END, letter))
        received = run(compiler, request)
        assert received.finished["r"].error is None
        assert set(received.of("r")) == set(VOCABULARY.encode("a"))  # a stop token is not delivered


def test_what_was_generated_before_counts(compiler: GrammarCompiler, vocabulary: GrammarVocabulary) -> None:
    whole = run(compiler, grammar_request("r", JSON, max_tokens=40)).of("r")
    for cut in range(1, len(whole)):
        resumed = grammar_request(
            "r", JSON, token_ids=[5, 6, 7, *whole[:cut]], num_resumed=cut, max_tokens=40 - cut
        )
        assert run(compiler, resumed).of("r") == whole[cut:]
    assert matches(vocabulary, JSON, whole, whole=True)


def test_what_was_generated_before_must_match(compiler: GrammarCompiler) -> None:
    wrong = grammar_request("r", regex("a+"), token_ids=[5, *VOCABULARY.encode("x")], num_resumed=1)
    error = run(compiler, wrong).finished["r"].error
    assert error is not None
    assert (error.code, error.param) == ("invalid_request", "num_resumed")


def test_a_resumed_answer_that_is_complete_gets_nothing_more(compiler: GrammarCompiler) -> None:
    done = grammar_request("r", regex("aa"), token_ids=[5, *VOCABULARY.encode("aa")], num_resumed=2)
    received = run(compiler, done)
    assert received.of("r") == []
    assert received.reasons["r", 0] == "stop"


def test_a_grammar_that_does_not_compile_ends_the_request_alone(compiler: GrammarCompiler) -> None:
    received = run(
        compiler,
        grammar_request("bad", regex("(a"), n=3),
        grammar_request("good", regex("ab")),
        grammar_request("free", None, max_tokens=2),
    )
    error = received.finished["bad"].error
    assert error is not None
    assert (error.code, error.param) == ("invalid_request", "guided_regex")
    assert received.of("bad") == []
    assert received.of("good") == list(VOCABULARY.encode("ab"))
    assert received.finished["free"].error is None


def test_a_grammar_that_explodes_on_the_way_ends_the_request_alone(compiler: GrammarCompiler) -> None:
    source = 'start: e\ne: e "+" e | e e | /[a-z]/ | "(" e ")"'
    ambiguous = Grammar(kind="lark", source=source, param="guided_grammar")
    letter = SamplingParams(logit_bias=((VOCABULARY.encode("a")[0], 100.0),))
    received = run(
        compiler,
        grammar_request("bad", ambiguous, max_tokens=200, stop_token_ids=(), sampling=letter),
        grammar_request("free", None, max_tokens=30, stop_token_ids=()),
    )
    error = received.finished["bad"].error
    assert error is not None
    assert (error.code, error.param) == ("invalid_request", "guided_grammar")
    assert "Too many items" in error.message
    assert len(received.of("free")) == 30


class StuckMatcher:
    """Allows nothing although it is not finished."""

    error = None
    is_finished = False

    def mask(self) -> bytes:
        return bytes(-(-VOCAB_SIZE // 32) * 4)

    def advance(self, token_ids: ReadOnly[int]) -> bool:  # noqa: ARG002 — the seam's
        return True

    def rollback(self, num_tokens: int) -> None:
        pass


def test_a_row_without_a_token_says_so() -> None:
    engine, _ = grammar_engine(InlineGrammars(lambda _: [StuckMatcher()]))
    engine.handle(Submit(grammar_request("r", regex("a"))))
    error = run_until_idle(engine).finished["r"].error
    assert error is not None
    assert (error.code, error.param) == ("invalid_request", "guided_regex")
    assert "No token" in error.message
    assert_idle(engine)


def test_an_engine_without_grammars_refuses_them_by_name() -> None:
    engine, _ = grammar_engine(None)
    engine.handle(Submit(grammar_request("r", regex("a"))))
    error = run_until_idle(engine).finished["r"].error
    assert error is not None
    assert error.param == "guided_regex"


def test_without_grammars_no_step_has_a_mask(compiler: GrammarCompiler) -> None:
    engine, runner = grammar_engine(InlineGrammars(compiler))
    engine.handle(Submit(grammar_request("free", None, max_tokens=3)))
    run_until_idle(engine)
    assert runner.steps
    assert all(step.sampling is None or not step.sampling.masks for step in runner.steps)
    engine.handle(Submit(grammar_request("free", None, max_tokens=9, stop_token_ids=())))
    engine.handle(Submit(grammar_request("bound", regex("a{5}"))))
    run_until_idle(engine)
    rows = [list(step.sampling.mask_rows) for step in runner.steps if step.sampling is not None]
    assert [-1, 0] in rows


def test_a_sequences_matcher_follows_several_tokens_and_goes_back(vocabulary: GrammarVocabulary) -> None:
    request = grammar_request("r", regex("abcd"))
    sequence = Sequence(request, 0, 0, KvBlocks(8, 16).new_chain("", 0))
    matcher = sequence.matcher = compiled(vocabulary, request)[0]
    a, b, c, d = VOCABULARY.encode("abcd")
    sequence.admit(0)
    sequence.advance(3, [a])
    after_a = matcher.mask()
    sequence.advance(3, [b, c, d])
    assert matcher.is_finished
    sequence.truncate(4)
    assert matcher.mask() == after_a
    assert list(sequence.tokens) == [*request.token_ids, a]


# While a grammar is compiled


def compiled(vocabulary: GrammarVocabulary, request: Request) -> list[Matcher]:
    assert request.grammar is not None
    return [vocabulary.compile(request.grammar, request.stop_token_ids) for _ in range(request.n)]


def test_nobody_waits_for_a_grammar_but_its_request(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars)
    received = Received()
    engine.handle(Submit(grammar_request("first", regex("aaa"), n=2)))
    assert engine.has_work
    assert step_checked(engine, received) is None
    engine.handle(Submit(grammar_request("free", None, max_tokens=3, stop_token_ids=())))
    run_until_idle(engine, received)
    assert list(received.finished) == ["free"]
    stats = engine.statistics()
    assert (stats.num_running, stats.num_waiting, stats.num_waiting_tokens) == (0, 2, 6)
    grammars.finish()
    run_until_idle(engine, received)
    assert received.of("first", 1) == list(VOCABULARY.encode("aaa"))
    assert_idle(engine)


def test_a_compiled_request_takes_its_place_in_arrival(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars, limits=SchedulerConfig(max_num_seqs=1))
    received = Received()
    engine.handle(Submit(grammar_request("running", None, max_tokens=2, stop_token_ids=())))
    step_checked(engine, received)
    engine.handle(Submit(grammar_request("early", regex("a"))))
    engine.handle(Submit(grammar_request("late", None, max_tokens=1, stop_token_ids=())))
    grammars.finish()
    run_until_idle(engine, received)
    assert list(received.finished) == ["running", "early", "late"]


def test_it_can_be_cancelled_while_it_is_compiled(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars)
    received = Received()
    engine.handle(Submit(grammar_request("whole", regex("aaa"), n=2)))
    engine.handle(Submit(grammar_request("part", regex("aaa"), n=2)))
    engine.handle(Cancel(request_id="whole"))
    engine.handle(Cancel(request_id="part", choice=0))
    run_until_idle(engine, received)
    assert list(received.finished) == ["whole"]
    grammars.finish(2)
    run_until_idle(engine, received)
    assert received.reasons == {
        ("whole", 0): "cancelled",
        ("whole", 1): "cancelled",
        ("part", 0): "cancelled",
        ("part", 1): "stop",
    }
    assert_idle(engine)


def test_an_engine_that_drains_finishes_what_is_compiled(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars)
    engine.handle(Submit(grammar_request("r", regex("ab"))))
    engine.handle(Drain())
    assert engine.is_draining
    assert engine.has_work
    grammars.finish()
    assert run_until_idle(engine).of("r") == list(VOCABULARY.encode("ab"))


def test_those_being_compiled_count_as_waiting(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars, limits=SchedulerConfig(max_queued_requests=2))
    for number in range(3):
        engine.handle(Submit(grammar_request(f"r{number}", regex("a"))))
    received = run_until_idle(engine)
    error = received.finished["r2"].error
    assert error is not None
    assert error.code == "queue_full"
    grammars.finish(2)
    run_until_idle(engine, received)
    assert set(received.finished) == {"r0", "r1", "r2"}


def test_few_are_compiled_before_they_run_however_many_wait_or_leave(vocabulary: GrammarVocabulary) -> None:
    grammars = LateGrammars(lambda request: compiled(vocabulary, request))
    engine, _ = grammar_engine(grammars, limits=SchedulerConfig(max_num_seqs=2))
    received = Received()
    names = [f"r{number}" for number in range(3 * MAX_COMPILED_AHEAD)]
    for name in names:
        engine.handle(Submit(grammar_request(name, regex("ab"))))
    assert len(grammars.requests) == MAX_COMPILED_AHEAD
    for name in names[:4]:
        engine.handle(Cancel(request_id=name))
    step_checked(engine, received)
    assert (
        len(grammars.requests) == MAX_COMPILED_AHEAD
    )  # what nobody waits for is in the compiler's queue all the same
    order = []
    while engine.has_work:
        order += [request.request_id for request in grammars.requests[:1]]
        grammars.finish()
        step_checked(engine, received)
    assert order == names
    assert set(received.finished) == set(names)
    assert_idle(engine)


# The thread


def test_the_thread_compiles_in_order_wakes_and_ends() -> None:
    woken = threading.Semaphore(0)
    seen: list[str] = []

    def compile_grammar(request: Request) -> ReadOnly[Matcher]:
        seen.append(threading.current_thread().name)
        if request.request_id == "refused":
            raise InvalidRequest("No.", param="x")
        if request.request_id == "broken":
            raise RuntimeError("a bug")
        return [StuckMatcher()]

    grammars = GrammarThread(compile_grammar)
    grammars.wake_with(woken.release)
    outcomes = []
    names = ("good", "refused", "broken", "again")
    for name in names:
        grammars.submit(grammar_request(name, regex("a")))
    for _ in names:
        assert woken.acquire(timeout=30)
    outcomes = list(grammars.take())
    assert [request_id for request_id, _ in outcomes] == list(names)
    kinds = [type(outcome).__name__ for _, outcome in outcomes]
    assert kinds == ["list", "InvalidRequest", "InternalError", "list"]
    assert set(seen) == {"grammars"}
    assert list(grammars.take()) == []


class SlowGrammars(LateGrammars):
    """Tells when a request is being compiled."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        super().__init__(lambda request: compiled(vocabulary, request))
        self.submitted = threading.Semaphore(0)

    def submit(self, request: Request) -> None:
        super().submit(request)
        self.submitted.release()


def test_an_idle_engine_wakes_when_a_grammar_is_compiled(vocabulary: GrammarVocabulary) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    grammars = SlowGrammars(vocabulary)
    engine, _ = grammar_engine(grammars)
    thread = threading.Thread(target=run_engine, args=(EngineChannel(theirs), lambda: engine))
    thread.start()
    ours.sendall(FrameEncoder().encode(Submit(grammar_request("r", regex("ab")))))
    assert grammars.submitted.acquire(timeout=30)
    grammars.finish()
    decoder: FrameDecoder[FromWorker] = FrameDecoder(FromWorker)
    received = Received()
    while "r" not in received.finished:
        for message in decoder.feed(ours.recv(65536)):
            if isinstance(message, StepOutputs):
                received.take(message)
    assert received.of("r") == list(VOCABULARY.encode("ab"))
    ours.close()
    thread.join(30)
    assert not thread.is_alive()


def test_an_engine_that_sees_no_grammar_does_not_load_the_library() -> None:
    code = "import sys, headway.engine.build; sys.exit('llguidance' in sys.modules)"
    assert subprocess.run((sys.executable, "-c", code), check=False, timeout=60).returncode == 0
