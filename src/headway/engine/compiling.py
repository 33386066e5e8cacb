"""Where requests wait whose grammar is not compiled: before the queue, in the order of arrival, few of them at a time.

A compiled grammar may hold tens of megabytes (docs/log.md), so only `MAX_COMPILED_AHEAD` are compiled before their requests
run. It knows no queue and no blocks; the engine asks it at every step, when there is something to ask.
"""

from collections.abc import Iterator
from collections.abc import Sequence as ReadOnly

from headway.core.errors import HeadwayError
from headway.engine.grammars import Grammars, Matcher
from headway.engine.live_request import LiveRequest
from headway.engine.sequence import Sequence

MAX_COMPILED_AHEAD = 16
"""Enough to fill the places that become free in a step or two."""


class Compiling:
    """Requests by id. `grammars` None = none ever come."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._waiting: dict[str, LiveRequest] = {}
        self._ahead: set[str] = set()  # whose grammar is compiled, or being so, and that have not run yet

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    @property
    def sequences(self) -> Iterator[Sequence]:
        """The open choices of all of them."""
        return (sequence for live in self._waiting.values() for sequence in live.open.values())

    def enter(self, live: LiveRequest) -> None:
        """Let a request wait here until `take` gives it back."""
        self._waiting[live.request.request_id] = live
        self._compile_ahead()

    def take(self) -> list[tuple[LiveRequest, ReadOnly[Matcher] | HeadwayError]]:
        """Return those that need not wait any more, with a matcher for each choice or why there is none."""
        if self._grammars is None or not self._waiting:
            return []
        taken: list[tuple[LiveRequest, ReadOnly[Matcher] | HeadwayError]] = []
        for request_id, outcome in self._grammars.take():
            live = self._waiting.pop(request_id, None)
            if live is None or isinstance(
                outcome, HeadwayError
            ):  # cancelled in the meantime, or about to end
                self._ahead.discard(request_id)
            if live is not None:
                taken.append((live, outcome))
        self._compile_ahead()
        return taken

    def started(self, request_id: str) -> None:
        """Note that a request runs."""
        self._ahead.discard(request_id)

    def ended(self, request_id: str) -> None:
        """Note that a request has ended; one that is being compiled counts until the compiler is done with it."""
        if self._waiting.pop(request_id, None) is None:
            self._ahead.discard(request_id)

    def _compile_ahead(self) -> None:
        if self._grammars is None:
            return
        for request_id, live in self._waiting.items():
            if len(self._ahead) >= MAX_COMPILED_AHEAD:
                break
            if request_id not in self._ahead:
                self._ahead.add(request_id)
                self._grammars.submit(live.request)
