"""Every request in the engine, from its arrival to its one `Finished`: accepted, compiled for, queued, ended.

It owns what is remembered of requests, the queue and the places of those that run (`roster`), what is counted (`totals`)
and what is to be reported (`outbox`). It plans no step and computes nothing: `engine.engine` does.
"""

import logging
from collections.abc import Callable

from headway.core.clock import Clock
from headway.core.config import SchedulerConfig
from headway.core.errors import HeadwayError, InvalidRequest, QueueFull
from headway.core.messages import EngineInfo, FinishReason
from headway.core.request import Request
from headway.engine.accounts import RANKS, Accounts
from headway.engine.admission import QueueLoad, refusal
from headway.engine.compiling import Compiling
from headway.engine.grammars import Grammars
from headway.engine.kv_memory import KvMemory
from headway.engine.live_request import LiveRequest, refused
from headway.engine.outbox import Outbox
from headway.engine.queue_counts import QueueCounts, Queued
from headway.engine.roster import Roster
from headway.engine.sequence import Sequence
from headway.engine.totals import Totals

logger = logging.getLogger(__name__)


Forecaster = Callable[[Sequence], HeadwayError | None]
"""Gives a sequence that has just come its deadline, and returns why it is refused; None = it is expected in time."""


class Requests:
    """The living requests of one engine.

    grammars   None = a grammar is refused by name
    promise    what a new request is promised, and whether that can be kept
    """

    def __init__(
        self,
        info: EngineInfo,
        limits: SchedulerConfig,
        clock: Clock,
        memory: KvMemory,
        grammars: Grammars | None,
        promise: Forecaster,
    ) -> None:
        self.roster = Roster()
        self.accounts = Accounts(limits.class_shares)
        self.totals = Totals()
        self.queued = QueueCounts()
        self.outbox = Outbox()
        self._info = info
        self._limits = limits
        self._clock = clock
        self._memory = memory
        self._grammars = grammars
        self._promise = promise
        self._compiling = Compiling(grammars)
        self._live: dict[str, LiveRequest] = {}
        self._next_order = 0

    def __bool__(self) -> bool:
        return bool(self._live)

    def __getitem__(self, request_id: str) -> LiveRequest:
        return self._live[request_id]

    @property
    def num_compiling(self) -> int:
        """Choices whose grammar is not compiled yet."""
        return sum(1 for _ in self._compiling.sequences)

    @property
    def all_compile(self) -> bool:
        """Whether every request waits for its grammar, so that nothing can be computed."""
        return len(self._compiling) == len(self._live)

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when a grammar was compiled."""
        if self._grammars is not None:
            self._grammars.wake_with(wake)

    # Arrivals

    def submit(self, request: Request, *, draining: bool) -> None:
        """Accept a request or put its refusal into the outbox."""
        now_ns = self._clock.now_ns()
        if request.request_id in self._live:
            # An answer under this id would end the first one's stream; clients keep ids unique.
            logger.error("request id %s is in use; the second request is dropped", request.request_id)
            return
        error = self._refusal(request, draining=draining)
        others_give_way = isinstance(error, QueueFull) and self._crowded_out(request) is not None
        if error is None or others_give_way:
            first = self._first_choice(request, now_ns)
            error = self._promise(first)
            if error is None and others_give_way:
                error = self._make_room(request)
        if error is not None:
            self.outbox.put_end(refused(request, error, now_ns))
            return
        sequences = {first.choice: first}
        for offset in range(1, request.n):
            sequences[first.choice + offset] = Sequence(
                request,
                first.choice + offset,
                first.order + offset,
                first.chain.copy(),
                arrival_ns=first.arrival_ns,
                deadline_ns=first.deadline_ns,
                num_expected=first.num_expected,
            )
        for sequence in sequences.values():
            sequence.shares &= self._limits.prefix_cache
            self.accounts.enter(sequence.tenant)
        self._next_order += request.n
        live = LiveRequest(request=request, open=sequences, queued_ns=now_ns)
        self._live[request.request_id] = live
        self._memory.sessions.enter(request)
        self.queued.enter(request)
        if request.grammar is not None:
            self._compiling.enter(live)
        else:
            self._enqueue(live)

    def _first_choice(self, request: Request, now_ns: int) -> Sequence:
        """Return the first choice of a request, which holds nothing yet and has no deadline."""
        # What takes nothing from the cache has a partition of its own.
        salt = f"{request.salt} {request.request_id}" if request.pooling == "mean" else request.salt
        chain = self._memory.blocks.new_chain(salt, request.adapter_id)
        arrival_ns = now_ns if request.arrival_ns is None else request.arrival_ns
        sequence = Sequence(request, request.first_choice, self._next_order, chain, arrival_ns=arrival_ns)
        if self._limits.prefix_cache:
            num_cached = len(self._memory.blocks.match(chain, sequence.num_tokens))
            num_cached += self._memory.restorable(sequence, num_cached)
            sequence.num_expected -= num_cached * self._info.block_size
        return sequence

    def take_compiled(self) -> None:
        """Let requests whose grammar was compiled join the queue, or end."""
        if not self._compiling:
            return
        for live, outcome in self._compiling.take():
            self._enqueue(live)
            if isinstance(outcome, HeadwayError):
                self.end_all(live, outcome)
                continue
            for sequence in list(live.open.values()):
                sequence.matcher = outcome[sequence.choice - live.request.first_choice]
                if sequence.matcher.is_finished:  # it resumes a complete answer, or only "" matches
                    self.end_choice(live, sequence, "stop")

    def note_start(self, sequence: Sequence) -> None:
        """A sequence runs, maybe again; call it once its first block table is open."""
        live = self._live[sequence.request.request_id]
        if live.first_scheduled_ns is None:
            live.first_scheduled_ns = self._clock.now_ns()
            live.num_cached = sequence.num_computed
            self._compiling.started(live.request.request_id)
            self.totals.count_prefix(len(live.request.token_ids), live.num_cached)

    def _crowded_out(self, request: Request) -> LiveRequest | None:
        """Return whose request gives way to a new one in a full line: the latest of the tenant with most that waits."""
        tenant = self.queued.gives_way(request, self._limits)
        if tenant is None:
            return None
        line = (request.service_class, tenant)
        for live in reversed(self._live.values()):
            one = live.request
            if (
                (one.service_class, one.tenant) == line
                and not one.resumes
                and live.first_scheduled_ns is None
            ):
                return live
        return None

    def _make_room(self, request: Request) -> HeadwayError | None:
        """End what gives way to a new request; return why there is no room all the same."""
        while (error := self._refusal(request, draining=False)) is not None:
            crowded_out = self._crowded_out(request) if isinstance(error, QueueFull) else None
            if crowded_out is None:
                return error
            self.end_all(crowded_out, error)
        return None

    def _refusal(self, request: Request, *, draining: bool) -> HeadwayError | None:
        queued = self.queued.of_class(request.service_class)
        load = QueueLoad(
            num_sequences=queued.num_sequences,
            num_tokens=queued.num_tokens,
            wait_s=self.totals.expected_wait_s(self.queued.num_tokens),
            draining=draining,
        )
        error = refusal(request, self._info, self._limits, load)
        if error is None and request.grammar is not None and self._grammars is None:
            param = request.grammar.param
            error = InvalidRequest(f"`{param}` is not supported by this engine; leave it out.", param=param)
        return error

    def _enqueue(self, live: LiveRequest) -> None:
        for sequence in live.open.values():
            self.roster.enqueue(sequence)

    # Ends

    def cancel(self, request_id: str, choice: int | None, reason: FinishReason) -> None:
        """End a request or one of its choices; unknown ids are ignored."""
        live = self._live.get(request_id)
        if live is None:
            return
        for sequence in list(live.open.values()):
            if choice is None or sequence.choice == choice:
                self.end_choice(live, sequence, reason)

    def end_choice(self, live: LiveRequest, sequence: Sequence, reason: FinishReason) -> None:
        """End one choice, and with the last one the request."""
        self._close(live, sequence, reason)
        if not live.open:
            self._end(live, None)

    def end_all(self, live: LiveRequest, error: HeadwayError) -> None:
        """End a request with an error."""
        for sequence in list(live.open.values()):
            self._close(live, sequence, "error")
        self._end(live, error)

    def _close(self, live: LiveRequest, sequence: Sequence, reason: FinishReason) -> None:
        del live.open[sequence.choice]
        if not sequence.has_started:
            self.queued.leave(sequence.request)
        if live.request.request_id not in self._compiling:
            self.roster.remove(sequence)
        self._memory.let_go(sequence)
        sequence.finish()
        self.accounts.leave(sequence.tenant)
        if sequence.num_output:
            self.totals.count_answer(sequence.num_output)
        self.outbox.put_choice_end(live.request.request_id, sequence.choice, reason)

    def _end(self, live: LiveRequest, error: HeadwayError | None) -> None:
        del self._live[live.request.request_id]
        self._compiling.ended(live.request.request_id)
        now_ns = self._clock.now_ns()
        self._memory.sessions.leave(live.request, now_ns)
        self.outbox.put_end(live.finished(now_ns, error))

    def check(self) -> None:
        """Raise AssertionError unless every open choice is held in exactly one place. For tests."""
        self.roster.check()
        alive = [s.order for live in self._live.values() for s in live.open.values()]
        compiling = list(self._compiling.sequences)
        held = [s.order for s in (*self.roster.running, *self.roster.waiting, *compiling)]
        assert sorted(alive) == sorted(held), "a sequence is lost or held twice"
        queued = [s for s in (*self.roster.waiting, *compiling) if not s.has_started]
        assert sum(s.num_prompt for s in queued) == self.queued.num_tokens, "the queue's tokens are wrong"
        for service_class in RANKS:
            line = [s for s in queued if s.request.service_class == service_class]
            counted = Queued(len(line), sum(s.num_prompt for s in line))
            assert counted == self.queued.of_class(service_class), "a class's line is counted wrongly"
