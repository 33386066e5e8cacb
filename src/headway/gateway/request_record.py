"""Times one request and tells the hook: first token, later tokens, and exactly one end. It knows no HTTP and no text.

Intervals come from one injected monotonic clock; the engine's times share that clock's origin (one machine).
"""

from headway.core.caller import Caller
from headway.core.clock import Clock
from headway.core.errors import HeadwayError, RequestError, Unavailable
from headway.core.events import Event, FirstToken, Hook, Outcome, RequestEnded, TokensArrived
from headway.core.hooks import emit
from headway.core.messages import Finished, Usage
from headway.core.request import ServiceClass
from headway.core.stages import Marks, Stages

CLIENT_CLOSED_STATUS = 499
"""Nginx's status for a client that left before it was answered; never sent, only counted."""
_NOBODY = Caller()


class RequestRecord:
    """What happened to one request so far, made when it was parsed. `end` may be called more than once; the first counts.

    `caller` and `endpoint` (its route) are passed on to whoever listens. Of tokens he hears with `tell`, at the end at the
    latest: when they are on their way, as their reader waits and nobody else does.
    """

    def __init__(
        self,
        *,
        request_id: str,
        model: str,
        service_class: ServiceClass,
        arrival_ns: int,
        clock: Clock,
        hook: Hook | None,
        caller: Caller | None = None,
        endpoint: str = "",
    ) -> None:
        self.request_id = request_id
        self.model = model
        self.service_class: ServiceClass = service_class
        self.arrival_ns = arrival_ns
        self.outcome: Outcome | None = None
        self.usage: Usage | None = None
        self.ended: RequestEnded | None = None
        self._caller = caller or _NOBODY
        self.endpoint = endpoint
        self._marks = Marks(arrival_ns, parsed_ns=clock.now_ns())
        self._clock = clock
        self._hook = hook
        self._first_ns: int | None = None
        self._choice_ns: dict[int, tuple[int, int, int]] = {}  # choice → first ns, last ns, tokens
        self._queue_ns: int | None = None
        self._num_preemptions = 0
        self._untold: list[Event] = []

    def note_submitted(self) -> None:
        """The engine is asked, now; of several parts the first counts."""
        if self._marks.submitted_ns is None:
            self._marks.submitted_ns = self._clock.now_ns()

    def stages(self, end_ns: int) -> Stages:
        """Return where the time until `end_ns` went."""
        return self._marks.split(end_ns, self._first_ns)

    def now_ns(self) -> int:
        """Return the time of the clock that it goes by."""
        return self._clock.now_ns()

    def note_tokens(self, choice: int, num_tokens: int, now_ns: int) -> None:
        """A step's tokens for one choice arrived at `now_ns`; of several steps that waited, all."""
        if self._first_ns is None:
            self._first_ns = now_ns
            self._untold.append(self._first_token(now_ns))
        first_ns, last_ns, total = self._choice_ns.get(choice, (now_ns, now_ns, 0))
        if total:
            self._untold.append(
                TokensArrived(
                    request_id=self.request_id,
                    model=self.model,
                    num_tokens=num_tokens,
                    interval_ns=now_ns - last_ns,
                )
            )
        self._choice_ns[choice] = (first_ns, now_ns, total + num_tokens)

    def tell(self) -> None:
        """Tell of the tokens noted since."""
        for event in self._untold:
            emit(self._hook, event)
        self._untold.clear()

    def note_finished(self, finished: Finished) -> None:
        """The engine ended a part of the request (one per prompt)."""
        self._marks.note_finished(finished)
        self._num_preemptions += finished.num_preemptions
        if finished.queued_ns is not None and finished.first_scheduled_ns is not None:
            waited_ns = max(0, finished.first_scheduled_ns - finished.queued_ns)
            self._queue_ns = max(self._queue_ns or 0, waited_ns)

    def num_used(self, usage: Usage) -> int:
        """Return how many tokens count for its caller's budget, after its end: none of what was not begun."""
        return 0 if self.outcome == "refused" else usage.prompt_tokens + usage.completion_tokens

    def end(
        self, outcome: Outcome, *, status: int, usage: Usage | None = None, error_code: str | None = None
    ) -> None:
        """Say how it ended; later calls are ignored."""
        if self.outcome is not None:
            return
        self.outcome, self.usage = outcome, usage
        self.tell()
        if self._hook is None:
            return
        now_ns = self._clock.now_ns()
        self.ended = RequestEnded(
            request_id=self.request_id,
            model=self.model,
            outcome=outcome,
            status=status,
            usage=usage,
            ttft_ns=None if self._first_ns is None else self._first_ns - self.arrival_ns,
            queue_ns=self._queue_ns,
            tpot_ns=self._tpot_ns(),
            e2e_ns=now_ns - self.arrival_ns,
            num_preemptions=self._num_preemptions,
            error_code=error_code,
            service_class=self.service_class,
            token_id=self._caller.token_id,
            kind=self._caller.kind,
            tenant=self._caller.tenant,
            endpoint=self.endpoint,
            stages=self.stages(now_ns),
        )
        emit(self._hook, self.ended)

    def end_with_error(self, error: HeadwayError, usage: Usage | None = None) -> None:
        """It failed, or was refused: a mistake of the caller or a limit of the server before the first token."""
        refused = self._first_ns is None and isinstance(error, RequestError | Unavailable)
        self.end("refused" if refused else "error", status=error.status, usage=usage, error_code=error.code)

    def _tpot_ns(self) -> int | None:
        """Time per output token of the longest choice: (last − first) / (n − 1)."""
        if not self._choice_ns:
            return None
        first_ns, last_ns, total = max(self._choice_ns.values(), key=lambda choice: choice[2])
        return (last_ns - first_ns) // (total - 1) if total > 1 else None

    def _first_token(self, now_ns: int) -> FirstToken:
        return FirstToken(
            request_id=self.request_id,
            model=self.model,
            ttft_ns=now_ns - self.arrival_ns,
            service_class=self.service_class,
            token_id=self._caller.token_id,
            kind=self._caller.kind,
            tenant=self._caller.tenant,
            endpoint=self.endpoint,
        )
