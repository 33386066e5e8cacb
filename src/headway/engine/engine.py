"""The engine: one model's requests, from acceptance to their one terminal event. Single-threaded and synchronous.

The walk of a request:

1. `handle(Submit)` refuses it (`admission`) or makes one `Sequence` per choice and puts them in the queue. If the answer
   must match a grammar they join the queue, at their place in arrival, once it is compiled (`grammars`).
2. `step()` asks the pure `scheduler.plan` what to do, then does it: releases the blocks of preempted sequences, shares
   cached blocks with those that start, and allocates (`headway.kv`).
3. `step_builder` lays the chunks out as flat arrays and the runner computes them: the one call that takes time.
4. Every sequence advances; blocks that are full now become shareable; drawn tokens go into this step's `StepOutputs`,
   and a choice that drew a stop token or its last token ends.
5. When its last choice has ended, the request ends with `Finished`, which carries its usage.

`handle(Cancel)` takes effect at once, since nothing runs between two steps; its events leave with the next `step()`.
A runner that raises ends the requests of that step with an error, and nobody else's.

It knows no thread, no process and no text. Its owner calls `handle` and `step` in turn (`engine.thread`, `engine.process`).
"""

import logging
from collections.abc import Callable

from headway.core.clock import Clock
from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError, HeadwayError, InternalError, InvalidRequest
from headway.core.messages import (
    Cancel,
    Drain,
    EngineInfo,
    EngineStats,
    FinishReason,
    StepOutputs,
    Submit,
    ToEngine,
)
from headway.core.request import Request
from headway.engine.admission import QueueLoad, refusal
from headway.engine.compiling import Compiling
from headway.engine.grammars import Grammars
from headway.engine.live_request import LiveRequest, refused
from headway.engine.outbox import Outbox
from headway.engine.pooling import HiddenRows, Pooler
from headway.engine.roster import Roster
from headway.engine.scheduler import plan
from headway.engine.sequence import Sequence, State
from headway.engine.step_builder import build_step
from headway.engine.totals import Totals
from headway.engine.view import Plan, View
from headway.kv.blocks import KvBlocks
from headway.runner.step import OutputKind, Runner, StepResult

logger = logging.getLogger(__name__)


class Engine:
    """Runs requests on `runner`, one step at a time. Raises ConfigError for limits under which nothing could run."""

    def __init__(
        self,
        runner: Runner,
        config: SchedulerConfig,
        clock: Clock,
        info: EngineInfo,
        grammars: Grammars | None = None,
    ) -> None:
        if config.max_num_seqs < 1 or config.max_prefill_tokens < 1:
            raise ConfigError("max_num_seqs and max_prefill_tokens must be at least 1.")
        self._runner = runner
        self._limits = config
        self._clock = clock
        self.info = info
        self._kv = KvBlocks(info.num_blocks, info.block_size)
        self._grammars = grammars
        self._requests: dict[str, LiveRequest] = {}
        self._compiling = Compiling(grammars)
        self._roster = Roster()
        self._next_order = 0
        self._draining = False
        self._totals = Totals()
        self._outbox = Outbox()

    # What the owner calls

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to compute or to report."""
        return bool(self._requests) or self._outbox.has_ends

    @property
    def is_draining(self) -> bool:
        """Whether `Drain` was handled; together with `not has_work` the engine may end."""
        return self._draining

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when a grammar was compiled: a step has something to do then."""
        if self._grammars is not None:
            self._grammars.wake_with(wake)

    def handle(self, message: ToEngine) -> None:
        """Take one message. Never blocks and never raises for what a message says."""
        match message:
            case Submit(request):
                self._submit(request)
            case Cancel(request_id=request_id, choice=choice, reason=reason):
                self._cancel(request_id, choice, reason)
            case Drain():
                self._draining = True

    def step(self) -> StepOutputs | None:
        """Compute one step and return all that happened since the last one; None when there was no work."""
        if not self.has_work:
            return None
        started_ns = self._clock.now_ns()
        runner_ns = 0
        if self._compiling:
            self._take_compiled()
            if not self._outbox.has_ends and len(self._compiling) == len(self._requests):
                return None  # until a grammar is compiled
        step_plan = plan(self._view(), self._limits, started_ns)
        self._rearrange(step_plan, started_ns)
        if step_plan.chunks:
            step = build_step(step_plan.chunks)
            before_ns = self._clock.now_ns()
            try:
                result = self._runner.execute(step)
                num_sampled = step.output_kinds.count(OutputKind.LOGITS)
                if len(result.tokens) != num_sampled:
                    raise ValueError(f"{num_sampled} tokens asked for, {len(result.tokens)} drawn")
                if bool(result.hidden) != (num_sampled < len(step.output_rows)):
                    raise ValueError("hidden states do not come as asked for")
            except Exception:
                logger.exception("the runner failed in a step of %d sequences", len(step_plan.chunks))
                self._fail(step_plan)
            else:
                runner_ns = self._clock.now_ns() - before_ns
                self._advance(step_plan, result)
        self._totals.count_step(self._clock.now_ns() - started_ns, runner_ns)
        return self._outbox.take(self.statistics())

    def statistics(self) -> EngineStats:
        """Return a picture of this moment."""
        blocks = self._kv.pool.statistics()
        return self._totals.statistics(
            num_running=self._roster.num_running,
            num_waiting=len(self._roster.waiting) + sum(1 for _ in self._compiling.sequences),
            num_blocks=blocks.num_blocks,
            num_free_blocks=blocks.num_free + blocks.num_evictable,
            num_cached_blocks=len(self._kv.cache),
        )

    def block_table(self, request_id: str, choice: int = 0) -> tuple[int, ...]:
        """Return the KV blocks of a choice, in order; empty while it waits. Raises KeyError when it has ended."""
        return tuple(self._requests[request_id].open[choice].table)

    def check(self) -> None:
        """Raise AssertionError unless blocks and sequences account for each other exactly. For tests."""
        self._roster.check()
        self._kv.check(sequence.table for sequence in self._roster.running)
        alive = [s.order for live in self._requests.values() for s in live.open.values()]
        compiling = list(self._compiling.sequences)
        held = [s.order for s in (*self._roster.running, *self._roster.waiting, *compiling)]
        assert sorted(alive) == sorted(held), "a sequence is lost or held twice"
        queued = [s for s in (*self._roster.waiting, *compiling) if not s.has_started]
        assert len(queued) == self._totals.num_queued, "the queue's length is wrong"
        assert sum(s.num_prompt for s in queued) == self._totals.num_queued_tokens, (
            "the queue's tokens are wrong"
        )

    # Arrivals and cancellations

    def _submit(self, request: Request) -> None:
        now_ns = self._clock.now_ns()
        if request.request_id in self._requests:
            # An answer under this id would end the first one's stream; clients keep ids unique.
            logger.error("request id %s is in use; the second request is dropped", request.request_id)
            return
        load = QueueLoad(
            num_sequences=self._totals.num_queued,
            num_tokens=self._totals.num_queued_tokens,
            wait_s=self._totals.expected_wait_s(),
            draining=self._draining,
        )
        error = refusal(request, self.info, self._limits, load)
        if error is None and request.grammar is not None and self._grammars is None:
            param = request.grammar.param
            error = InvalidRequest(f"`{param}` is not supported by this engine; leave it out.", param=param)
        if error is not None:
            self._outbox.put_end(refused(request, error, now_ns))
            return
        # What takes nothing from the cache has a partition of its own.
        salt = f"{request.salt} {request.request_id}" if request.pooling == "mean" else request.salt
        chain = self._kv.new_chain(salt, request.adapter_id)
        sequences = {}
        for choice in range(request.n):
            sequences[choice] = Sequence(
                request, choice, self._next_order, chain if choice == 0 else chain.copy()
            )
            self._next_order += 1
        live = LiveRequest(request=request, open=sequences, queued_ns=now_ns)
        self._requests[request.request_id] = live
        self._totals.count_queued(request.n, request.n * len(request.token_ids))
        if request.grammar is not None:
            self._compiling.enter(live)
        else:
            self._enqueue(live)

    def _enqueue(self, live: LiveRequest) -> None:
        for sequence in live.open.values():
            self._roster.enqueue(sequence)

    def _take_compiled(self) -> None:
        """Let requests whose grammar was compiled join the queue, or end."""
        for live, outcome in self._compiling.take():
            self._enqueue(live)
            if isinstance(outcome, HeadwayError):
                self._end_all(live, outcome)
                continue
            for sequence in list(live.open.values()):
                sequence.matcher = outcome[sequence.choice]
                if sequence.matcher.is_finished:  # it resumes a complete answer, or only "" matches
                    self._end_choice(live, sequence, "stop")
            if not live.open:
                self._end_request(live)

    def _cancel(self, request_id: str, choice: int | None, reason: FinishReason) -> None:
        live = self._requests.get(request_id)
        if live is None:
            return
        for sequence in list(live.open.values()):
            if choice is None or sequence.choice == choice:
                self._end_choice(live, sequence, reason)
        if not live.open:
            self._end_request(live)

    # One step

    def _view(self) -> View[Sequence]:
        return View(
            running=self._roster.running,
            waiting=self._roster.waiting,
            block_size=self.info.block_size,
            num_available=self._kv.pool.num_available,
            references=self._kv.pool.references,
            match=lambda sequence: self._kv.match(sequence.chain, sequence.num_tokens),
        )

    def _rearrange(self, step_plan: Plan[Sequence], now_ns: int) -> None:
        """Move sequences and blocks as planned, up to the point where all chunks can be computed."""
        for sequence in step_plan.preempted:
            self._kv.pool.release_table(sequence.table)
            sequence.preempt()
            self._roster.enqueue(sequence)
            self._requests[sequence.request.request_id].num_preemptions += 1
            self._totals.preemptions += 1
        for sequence, shared in step_plan.admitted:
            self._roster.start(sequence)
            self._kv.open_table(sequence.table, shared)
            if not sequence.has_started:
                self._totals.count_unqueued(sequence.num_prompt)
            sequence.admit(len(shared))
            live = self._requests[sequence.request.request_id]
            if live.first_scheduled_ns is None:
                live.first_scheduled_ns = now_ns
                self._compiling.started(live.request.request_id)
                live.num_cached = sequence.num_computed
                self._totals.count_prefix(len(live.request.token_ids), live.num_cached)
        for sequence, _, _ in step_plan.chunks:
            self._kv.grow(sequence.table, sequence.num_tokens)

    def _advance(self, step_plan: Plan[Sequence], result: StepResult) -> None:
        """Give every sequence what it computed and drew."""
        now_ns = self._clock.now_ns()
        row = 0
        hidden = HiddenRows(result.hidden, step_plan.chunks)
        for sequence, num_tokens, draws in step_plan.chunks:
            self._totals.count_computed(num_tokens, sequence.is_decoding)
            if sequence.pooler is not None:
                hidden.push(sequence.pooler, num_tokens, ends=draws)
                sequence.advance(num_tokens, ())
                self._share(sequence)
                if draws:
                    self._end_pooled(sequence, sequence.pooler)
                continue
            drawn: tuple[int, ...] = ()
            logprobs = None
            if draws:
                drawn = (result.tokens[row],)
                logprobs = result.logprobs[row] if result.logprobs else None
                row += 1
            if sequence.state is State.FINISHED:
                continue  # another choice of its request failed in this step
            live = self._requests[sequence.request.request_id]
            if drawn and drawn[0] < 0 and not (sequence.matcher and sequence.matcher.is_finished):
                self._end_all(live, _no_token(sequence))
                continue
            accepted, reason = _accept(sequence, drawn)
            sequence.advance(num_tokens, accepted)
            if sequence.matcher is not None and sequence.matcher.is_finished:
                reason = "stop"
            self._share(sequence)
            if accepted:
                live.num_output += len(accepted)
                if live.first_token_ns is None:
                    live.first_token_ns = now_ns
                self._outbox.put_tokens(live.request.request_id, sequence.choice, accepted, logprobs)
            if reason is not None:
                self._end_choice(live, sequence, reason)
                if not live.open:
                    self._end_request(live)

    def _end_pooled(self, sequence: Sequence, pooler: Pooler) -> None:
        """End a request for an embedding, whose text is computed."""
        live = self._requests[sequence.request.request_id]
        live.embedding = pooler.result()
        if live.embedding is None:
            self._end_all(live, InternalError("The model gave no direction for this text; send another."))
            return
        self._end_choice(live, sequence, "stop")
        self._end_request(live)

    def _share(self, sequence: Sequence) -> None:
        """Offer the blocks that are full and computed to the prefix cache."""
        num_full = sequence.num_computed // self.info.block_size
        if num_full > sequence.num_shared and sequence.shares:
            sequence.chain.extend(sequence.tokens, sequence.num_computed)
            sequence.shares = self._kv.commit(sequence.table, sequence.chain, sequence.num_shared, num_full)
            if sequence.shares:
                sequence.num_shared = num_full

    def _fail(self, step_plan: Plan[Sequence]) -> None:
        """End every request that had a sequence in a step that failed."""
        for request_id in dict.fromkeys(chunk.sequence.request.request_id for chunk in step_plan.chunks):
            error = InternalError("The model failed to compute this request; send it again.")
            self._end_all(self._requests[request_id], error)

    # Ends

    def _end_choice(self, live: LiveRequest, sequence: Sequence, reason: FinishReason) -> None:
        del live.open[sequence.choice]
        if not sequence.has_started:
            self._totals.count_unqueued(sequence.num_prompt)
        if live.request.request_id not in self._compiling:
            self._roster.remove(sequence)
        self._kv.pool.release_table(sequence.table)
        sequence.finish()
        self._outbox.put_choice_end(live.request.request_id, sequence.choice, reason)

    def _end_all(self, live: LiveRequest, error: HeadwayError) -> None:
        for sequence in list(live.open.values()):
            self._end_choice(live, sequence, "error")
        self._end_request(live, error)

    def _end_request(self, live: LiveRequest, error: HeadwayError | None = None) -> None:
        del self._requests[live.request.request_id]
        self._compiling.ended(live.request.request_id)
        self._outbox.put_end(live.finished(self._clock.now_ns(), error))


def engine_info(model: str, runner: Runner) -> EngineInfo:
    """Return what an engine on `runner` is, under the name `model`."""
    return EngineInfo(
        model=model,
        vocab_size=runner.info.vocab_size,
        max_context=runner.info.max_context,
        num_blocks=runner.info.num_blocks,
        block_size=runner.info.block_size,
        system_fingerprint=runner.info.system_fingerprint,
    )


def _accept(sequence: Sequence, drawn: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
    """Return the drawn tokens that count, and why the choice ends with them, if it does."""
    request = sequence.request
    for position, token in enumerate(drawn):
        if (
            token < 0 or token in request.stop_token_ids
        ):  # no token: its grammar allows nothing after the last one
            return drawn[:position], "stop"
        if sequence.num_output + position + 1 >= request.max_tokens:
            return drawn[: position + 1], "length"
    return drawn, None


def _no_token(sequence: Sequence) -> HeadwayError:
    """Return why no token could be drawn."""
    grammar, matcher = sequence.request.grammar, sequence.matcher
    if grammar is None or matcher is None:
        return InternalError("The model gave no token for this request; send it again.")
    return matcher.error or InvalidRequest(
        f"No token of the model's vocabulary can go on as `{grammar.param}` asks; change it.",
        param=grammar.param,
    )
