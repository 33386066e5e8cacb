"""From a request's grammar to a matcher for each of its choices: tried first, then compiled, then brought up to date.

The vocabulary and the process that tries are made for the first request that has a grammar: no grammar, no cost.
It knows no threads; whoever calls it owns it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar, Request
from headway.models.grammar import GrammarVocabulary, Matcher, TokenTable
from headway.models.grammar_trial import GrammarTrial


@dataclass(frozen=True, slots=True)
class _Tools:
    vocabulary: GrammarVocabulary
    trial: GrammarTrial


class GrammarCompiler:
    """Compiles the grammars of requests to one model; for one thread at a time."""

    def __init__(self, open_tokens: Callable[[], TokenTable], vocab_size: int) -> None:
        """`open_tokens` is called once, for the first grammar; `vocab_size` is how many ids the model draws from."""
        self._open_tokens = open_tokens
        self._vocab_size = vocab_size
        self._tools: _Tools | None = None

    def __call__(self, request: Request) -> list[Matcher]:
        """Return a matcher for each choice of a request that has a grammar, having seen the tokens it resumes from.

        The first mask is computed already, as it is the slowest. Raises InvalidRequest, naming the grammar's field.
        """
        grammar = request.grammar
        assert grammar is not None
        tools = self._tools = self._tools or self._make_tools()
        matcher = tools.vocabulary.compile(tools.trial.check(grammar), request.stop_token_ids)
        _resume(matcher, request, grammar)
        matcher.mask()
        if matcher.error is not None:
            raise matcher.error
        return [matcher, *(matcher.copy() for _ in range(request.n - 1))]

    def close(self) -> None:
        """End the process that tries; the next grammar starts another."""
        if self._tools is not None:
            self._tools.trial.close()

    def _make_tools(self) -> _Tools:
        tokens = self._open_tokens()
        trial = GrammarTrial(tokens, self._vocab_size)
        trial.start()  # which takes about as long as the vocabulary
        return _Tools(GrammarVocabulary(tokens, self._vocab_size), trial)


def _resume(matcher: Matcher, request: Request, grammar: Grammar) -> None:
    resumed = request.token_ids[len(request.token_ids) - request.num_resumed :]
    if resumed and not matcher.advance(resumed):
        raise InvalidRequest(
            f"The last {request.num_resumed} tokens, which an earlier run generated, do not match `{grammar.param}`.",
            param="num_resumed",
        )
