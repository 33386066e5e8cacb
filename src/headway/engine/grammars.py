"""Compiles the grammars of requests beside the step loop, so that no running stream waits for it.

A grammar takes a millisecond to compile, or a second; the first one of all also builds the vocabulary (`models.grammar`),
a few tenths of a second more. `GrammarThread` does this on a thread that lives as long as there is something to compile and
lets go of the interpreter lock for most of it. `InlineGrammars` compiles at once, for tests that want a defined order.

It knows neither sequences nor the queue: the engine submits a request and takes its matchers, one for each choice, later.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headway.core.errors import HeadwayError, InternalError, InvalidRequest
from headway.core.request import Request

logger = logging.getLogger(__name__)


class Matcher(Protocol):
    """Where one choice stands in its grammar: `models.grammar.Matcher`, or a stand-in. Nothing raises."""

    @property
    def error(self) -> InvalidRequest | None:
        """Why nothing can be matched any more, if so."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete and nothing can be added to it."""
        ...

    def mask(self) -> bytes:
        """Return which tokens may come next, as `SamplingBatch.masks` has them; nothing at all once there is an error."""
        ...

    def advance(self, token_ids: Sequence[int]) -> bool:
        """Note tokens that were generated; return whether they match."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Take back the last `num_tokens`."""
        ...


CompileGrammar = Callable[[Request], Sequence[Matcher]]
"""Returns a matcher for each choice of a request that has a grammar; raises HeadwayError."""


Outcome = tuple[str, Sequence[Matcher] | HeadwayError]
"""A request's id, and its matchers or why there are none."""


class Grammars(Protocol):
    """Compiles grammars, now or soon."""

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, whenever `take` has something new."""
        ...

    def submit(self, request: Request) -> None:
        """Begin to compile the grammar of `request`. Never blocks and never raises."""
        ...

    def take(self) -> Sequence[Outcome]:
        """Return what was compiled since the last call."""
        ...


class InlineGrammars:
    """Compiles within `submit`."""

    def __init__(self, compile_grammar: CompileGrammar) -> None:
        self._compile = compile_grammar
        self._done: list[Outcome] = []

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Nothing ever comes later."""

    def submit(self, request: Request) -> None:
        """Compile now."""
        self._done.append((request.request_id, compile_or_explain(self._compile, request)))

    def take(self) -> Sequence[Outcome]:
        """Return what was compiled."""
        done, self._done = self._done, []
        return done


class GrammarThread:
    """Compiles on a thread of its own, in the order of arrival. All methods but the thread's belong to one thread."""

    def __init__(self, compile_grammar: CompileGrammar) -> None:
        self._compile = compile_grammar
        self._wake: Callable[[], None] = _nobody_waits
        self._lock = threading.Lock()
        self._requests: deque[Request] = deque()
        self._done: deque[Outcome] = deque()
        self._is_running = False

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake` on the thread after each grammar."""
        self._wake = wake

    def submit(self, request: Request) -> None:
        """Queue a request; start the thread if there is none."""
        with self._lock:
            self._requests.append(request)
            starts = not self._is_running
            self._is_running = True
        if starts:
            # A daemon: a compilation that lasts must not hold up the end of the process.
            threading.Thread(target=self._run, name="grammars", daemon=True).start()

    def take(self) -> Sequence[Outcome]:
        """Return what was compiled."""
        done = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def _run(self) -> None:
        while (request := self._next()) is not None:
            self._done.append((request.request_id, compile_or_explain(self._compile, request)))
            self._wake()

    def _next(self) -> Request | None:
        with self._lock:
            if self._requests:
                return self._requests.popleft()
            self._is_running = False
            return None


def compile_or_explain(compile_grammar: CompileGrammar, request: Request) -> Sequence[Matcher] | HeadwayError:
    """Compile, returning every error as one for the caller; a bug goes to the log."""
    try:
        return compile_grammar(request)
    except HeadwayError as error:
        return error
    except Exception:
        logger.exception("the grammar of request %s could not be compiled", request.request_id)
        return InternalError("The grammar of this request could not be compiled; the server's log says why.")


def _nobody_waits() -> None:
    """Stand in for whoever will wait."""
