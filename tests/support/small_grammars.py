"""Engines on the fake runner whose requests may have grammars over `SmallVocabulary`."""

from collections import deque
from collections.abc import Callable, Sequence

from headway.core.clock import ManualClock
from headway.core.config import SchedulerConfig
from headway.core.errors import HeadwayError
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import Grammars, Matcher, Outcome
from headway.models.grammar import GrammarVocabulary
from headway.runner.fake import FakeRunner
from support.small_vocabulary import END, OTHER_END, SmallVocabulary

VOCABULARY = SmallVocabulary()
VOCAB_SIZE = VOCABULARY.vocab_size
STOPS = (END, OTHER_END)


def regex(source: str) -> Grammar:
    return Grammar(kind="regex", source=source, param="guided_regex")


def grammar_request(
    request_id: str,
    grammar: Grammar | None,
    *,
    token_ids: Sequence[int] = (5, 6, 7),
    max_tokens: int = 20,
    sampling: SamplingParams | None = None,
    n: int = 1,
    stop_token_ids: tuple[int, ...] = STOPS,
    num_resumed: int = 0,
) -> Request:
    return Request(
        request_id=request_id,
        token_ids=tuple(token_ids),
        sampling=sampling or SamplingParams(temperature=1.0, seed=1),
        max_tokens=max_tokens,
        n=n,
        stop_token_ids=stop_token_ids,
        num_resumed=num_resumed,
        grammar=grammar,
    )


def grammar_engine(
    grammars: Grammars | None,
    *,
    limits: SchedulerConfig | None = None,
    num_blocks: int = 64,
    block_size: int = 16,
) -> tuple[Engine, FakeRunner]:
    runner = FakeRunner(
        num_blocks=num_blocks, block_size=block_size, vocab_size=VOCAB_SIZE, max_context=4096, keep_steps=True
    )
    info = engine_info("fake", runner)
    return Engine(runner, limits or SchedulerConfig(), ManualClock(), info, grammars), runner


class LateGrammars:
    """Compiles when the test says so."""

    def __init__(self, compile_grammar: Callable[[Request], Sequence[Matcher] | HeadwayError]) -> None:
        self._compile = compile_grammar
        self.requests: list[Request] = []
        self._done: deque[Outcome] = deque()  # filled by the test's thread, emptied by the engine's
        self._wake: Callable[[], None] = lambda: None

    def wake_with(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def submit(self, request: Request) -> None:
        self.requests.append(request)

    def take(self) -> Sequence[Outcome]:
        return [self._done.popleft() for _ in range(len(self._done))]

    def finish(self, count: int = 1) -> None:
        for request in self.requests[:count]:
            self._done.append((request.request_id, self._compile(request)))
        del self.requests[:count]
        self._wake()


def matches(grammars: GrammarVocabulary, grammar: Grammar, tokens: Sequence[int], *, whole: bool) -> bool:
    """Whether `tokens` are an answer, or with not `whole` the beginning of one."""
    matcher = grammars.compile(grammar, STOPS)
    return (not tokens or matcher.advance(tokens)) and (matcher.may_end or not whole)
