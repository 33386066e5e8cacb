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

from headway.core.clock import NS_PER_S, Clock
from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError, HeadwayError, InternalError
from headway.core.messages import (
    Cancel,
    Drain,
    EngineInfo,
    EngineStats,
    ReleaseSession,
    SessionReleased,
    StepOutputs,
    Submit,
    ToEngine,
)
from headway.engine.chunking import load_of
from headway.engine.drawn import accept, count_right, no_token, verified
from headway.engine.grammars import Grammars
from headway.engine.kv_memory import KvMemory
from headway.engine.pooling import HiddenRows, Pooler
from headway.engine.promises import Promises
from headway.engine.requests import Requests
from headway.engine.scheduler import plan
from headway.engine.sequence import Sequence, State
from headway.engine.step_builder import build_step
from headway.engine.step_cost import CostModel
from headway.engine.step_time import StepTime
from headway.engine.view import Plan, View
from headway.kv.tiers import Tiers
from headway.runner.step import OutputKind, Runner, Step, StepResult

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
        tiers: Tiers | None = None,
    ) -> None:
        if config.max_num_seqs < 1 or config.max_prefill_tokens < 1:
            raise ConfigError("max_num_seqs and max_prefill_tokens must be at least 1.")
        if config.max_draft_tokens < 0:
            raise ConfigError("max_draft_tokens must be at least 0.")
        self._runner = runner
        self._limits = config
        self._clock = clock
        self.info = info
        self._step_time = StepTime()
        self._promises = Promises(config)
        self._tiers = tiers
        self._memory = KvMemory(runner, info, config, clock, tiers, self._prefill_tokens_per_s)
        self._kv = self._memory.blocks
        self._requests = Requests(info, config, clock, self._memory, grammars, self._promise)
        self._cost = CostModel()
        self._draining = False

    # What the owner calls

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to compute or to report."""
        return bool(self._requests) or self._requests.outbox.has_ends

    @property
    def is_draining(self) -> bool:
        """Whether `Drain` was handled; together with `not has_work` the engine may end."""
        return self._draining

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when a step has something to do: a grammar was compiled, a block came back."""
        self._requests.wake_with(wake)
        if self._tiers is not None:
            self._tiers.wake_with(wake)

    def prepare(self) -> bool:
        """Do a little of what will make later steps quicker, milliseconds of work; return whether there was anything."""
        return self._memory.bind_next()

    def handle(self, message: ToEngine) -> None:
        """Take one message. Never blocks and never raises for what a message says."""
        match message:
            case Submit(request):
                self._requests.submit(request, draining=self._draining)
            case Cancel(request_id=request_id, choice=choice, reason=reason):
                self._requests.cancel(request_id, choice, reason)
            case ReleaseSession(release_id=release_id, tenant=tenant, session=session):
                found = self._memory.sessions.release((tenant, session))
                self._requests.outbox.put_release(SessionReleased(release_id, found))
            case Drain():
                self._draining = True

    def step(self) -> StepOutputs | None:
        """Compute one step and return all that happened since the last one; None when nothing could be done."""
        if not self.has_work:
            return None
        started_ns = self._clock.now_ns()
        self._requests.take_compiled()
        if self._requests and self._requests.all_compile and not self._requests.outbox.has_ends:
            return None  # until a grammar is compiled
        self._memory.sessions.expire(started_ns)
        num_restored = self._restore()
        step_plan = plan(self._view(), self._limits, started_ns)
        if not (step_plan.moves or num_restored or self._requests.outbox.has_ends) and self._memory.must_wait:
            return None  # until a block comes back
        self._rearrange(step_plan)
        runner_ns = 0
        load = None
        if step_plan.chunks:
            step = build_step(step_plan.chunks)
            load = load_of(step_plan.chunks)
            before_ns = self._clock.now_ns()
            try:
                result = self._execute(step)
            except Exception:
                logger.exception("the runner failed in a step of %d sequences", len(step_plan.chunks))
                self._fail(step_plan)
            else:
                runner_ns = self._clock.now_ns() - before_ns
                if step_plan.chunks[-1].sequence.is_decoding:  # no prompt: those come last
                    self._cost.observe(len(step.tokens), runner_ns)
                self._advance(step_plan, result)
        now_ns = self._clock.now_ns()
        self._requests.totals.count_step(now_ns - started_ns, runner_ns)
        self._requests.accounts.note_busy(now_ns - started_ns, now_ns)
        if load is not None and runner_ns:
            self._step_time.observe(load, now_ns - started_ns)
        return self._requests.outbox.take(self.statistics())

    def statistics(self) -> EngineStats:
        """Return a picture of this moment."""
        blocks = self._kv.pool.statistics()
        roster = self._requests.roster
        stats = self._requests.totals.statistics(
            num_running=roster.num_running,
            num_waiting=len(roster.waiting) + self._requests.num_compiling,
            num_waiting_tokens=self._requests.queued.num_tokens,
            num_blocks=blocks.num_blocks,
            num_free_blocks=blocks.num_free + blocks.num_evictable,
            num_cached_blocks=len(self._kv.cache),
            step_prediction_error=self._step_time.error,
        )
        return self._memory.count(stats)

    def block_table(self, request_id: str, choice: int = 0) -> tuple[int, ...]:
        """Return the KV blocks of a choice, in order; empty while it waits. Raises KeyError when it has ended."""
        return tuple(self._requests[request_id].open[choice].table)

    def check(self) -> None:
        """Raise AssertionError unless blocks and sequences account for each other exactly. For tests."""
        self._requests.check()
        self._memory.check(list(self._requests.roster.running))

    # One step

    def _view(self) -> View[Sequence]:
        return View(
            running=self._requests.roster.running,
            waiting=self._requests.roster.waiting,
            block_size=self.info.block_size,
            num_available=self._kv.pool.num_available,
            references=self._kv.pool.references,
            match=self._match,
            draft=Sequence.draft,
            cost=self._cost.cost,
            step_time=self._step_time,
            accounts=self._requests.accounts,
            restorable=self._memory.restorable,
        )

    def _restore(self) -> int:
        """Write blocks that came back; sequences that have all of theirs go on. Return how many blocks that were."""
        num_written, done = self._memory.advance()
        for sequence, num_blocks in done:
            sequence.restored(num_blocks)
            self._share(sequence)
            self._requests.note_start(sequence)
        return num_written + len(done)

    def _prefill_tokens_per_s(self) -> float | None:
        """Return how fast prompts are computed; None = not known yet."""
        per_token_ns = self._step_time.per_prompt_token_ns
        return NS_PER_S / per_token_ns if per_token_ns else None

    def _match(self, sequence: Sequence) -> list[int]:
        """Return the cached blocks that a sequence may start from."""
        return self._kv.match(sequence.chain, sequence.num_tokens) if self._limits.prefix_cache else []

    def _promise(self, new: Sequence) -> HeadwayError | None:
        """Give a sequence that has just come its deadline; return why it is refused, if that cannot be kept."""
        mean_output = self._requests.totals.mean_output
        return self._promises.give(new, self._view(), mean_output, self._clock.now_ns())

    def _rearrange(self, step_plan: Plan[Sequence]) -> None:
        """Move sequences and blocks as planned, up to the point where all chunks can be computed."""
        requests = self._requests
        for sequence in step_plan.preempted:
            self._memory.let_go(sequence)
            sequence.preempt()
            requests.roster.enqueue(sequence)
            requests[sequence.request.request_id].num_preemptions += 1
            requests.totals.preemptions += 1
        for admission in step_plan.admitted:
            sequence = admission.sequence
            requests.roster.start(sequence)
            restores = self._memory.open(admission)
            if not sequence.has_started:
                requests.queued.leave(sequence.request)
            sequence.admit(len(admission.shared), restores=restores)
            if not restores:
                requests.note_start(sequence)
        for admission in step_plan.admitted:  # once all that is shared is held
            if admission.num_restored:
                self._kv.grow(admission.sequence.table, admission.sequence.num_tokens)
        block_size = self.info.block_size
        for sequence, _, _, draft in step_plan.chunks:
            num_tokens = len(sequence.tokens) + len(draft)
            if num_tokens > len(sequence.table) * block_size:
                self._kv.grow(sequence.table, num_tokens)

    def _execute(self, step: Step) -> StepResult:
        """Make the one call that takes time; raises ValueError for a result that does not answer `step`."""
        result = self._runner.execute(step)
        num_sampled = step.output_kinds.count(OutputKind.LOGITS)
        if len(result.tokens) != num_sampled:
            raise ValueError(f"{num_sampled} tokens asked for, {len(result.tokens)} drawn")
        if bool(result.hidden) != (num_sampled < len(step.output_rows)):
            raise ValueError("hidden states do not come as asked for")
        return result

    def _advance(self, step_plan: Plan[Sequence], result: StepResult) -> None:
        """Give every sequence what it computed and drew."""
        requests = self._requests
        now_ns = self._clock.now_ns()
        row = 0
        hidden = HiddenRows(result.hidden, step_plan.chunks)
        for sequence, num_tokens, draws, draft in step_plan.chunks:
            requests.totals.count_computed(num_tokens, sequence.is_decoding)
            # What a preempted stream recomputes is nobody's wish.
            num_input = 0 if sequence.is_decoding or sequence.is_resuming else num_tokens
            requests.accounts.charge(sequence.rank, sequence.tenant, num_input, 0, now_ns)
            if sequence.pooler is not None:
                hidden.push(sequence.pooler, num_tokens, ends=draws)
                self._advance_pooled(sequence, sequence.pooler, num_tokens, ends=draws)
                continue
            drawn: tuple[int, ...] = ()
            first = row
            if draft:
                row += 1 + len(draft)
                drawn = verified(draft, result.tokens[first:row])
            elif draws:
                row += 1
                drawn = (result.tokens[first],)
            if sequence.state is State.FINISHED:
                continue  # another choice of its request failed in this step
            live = requests[sequence.request.request_id]
            if drawn and drawn[0] < 0 and not (sequence.matcher and sequence.matcher.is_finished):
                requests.end_all(live, no_token(sequence))
                continue
            accepted, reason = accept(sequence, drawn)
            if draft:
                self._advance_drafted(sequence, draft, drawn, accepted)
            else:
                sequence.advance(num_tokens, accepted)
            if sequence.matcher is not None and sequence.matcher.is_finished:
                reason = "stop"
            self._share(sequence)
            if accepted:
                requests.accounts.charge(sequence.rank, sequence.tenant, 0, len(accepted), now_ns)
                live.num_output += len(accepted)
                sequence.last_token_ns = now_ns
                if live.first_token_ns is None:
                    live.first_token_ns = now_ns
                    self._promises.note_first_token(sequence, now_ns)
                scored = result.logprobs[first : first + len(accepted)] if result.logprobs else ()
                logprobs = tuple(entry for entry in scored if entry is not None) if scored else ()
                requests.outbox.put_tokens(live.request.request_id, sequence.choice, accepted, logprobs)
            if reason is not None:
                requests.end_choice(live, sequence, reason)

    def _advance_drafted(
        self,
        sequence: Sequence,
        draft: tuple[int, ...],
        drawn: tuple[int, ...],
        accepted: tuple[int, ...],
    ) -> None:
        """Advance over the draft tokens that stand; blocks that only the others needed go back."""
        num_drafts_kept = max(0, len(accepted) - 1)
        sequence.advance(1 + num_drafts_kept, accepted)
        self._kv.pool.truncate(sequence.table, sequence.num_computed)
        totals, num_right = self._requests.totals, count_right(draft, drawn)
        totals.count_computed(num_drafts_kept, decoding=True)
        totals.count_drafted(len(draft), num_right)
        if sequence.drafter is not None:
            sequence.drafter.settle(len(draft), num_right)

    def _advance_pooled(self, sequence: Sequence, pooler: Pooler, num_tokens: int, *, ends: bool) -> None:
        """Note what was computed of a text to embed; `ends`: all of it was, and the request ends."""
        sequence.advance(num_tokens, ())
        self._share(sequence)
        if not ends:
            return
        live = self._requests[sequence.request.request_id]
        live.embedding = pooler.result()
        if live.embedding is None:
            error = InternalError("The model gave no direction for this text; send another.")
            self._requests.end_all(live, error)
        else:
            self._requests.end_choice(live, sequence, "stop")

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
            self._requests.end_all(self._requests[request_id], error)


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
