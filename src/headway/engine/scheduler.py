"""Decides one step: who decodes, who prefills how much, who starts, who gives its blocks back. Pure; it changes nothing.

Decoding sequences come first and all of them advance, but for those that a policy has pause for a prompt; then prompts, as
much as the inter-token target leaves (`chunking`), in the order of a policy (`policies`).

Memory. A sequence gets blocks for all its tokens when it starts, so only decoding can run short; then the sequence that the
policy holds least loses its blocks and waits again. Its tokens are kept and recomputed (mostly found in the prefix cache).
The one held most is never preempted for another, and alone it always fits (the engine refuses what does not): so every step
brings it closer to its end, and the next one takes its place. A policy may also let a better class start in the place of a
worse one.

Drafts. A step without prompts also carries tokens that decoding sequences may say next (`speculation`).

Shared prefixes. A sequence that needs a block which another one is computing waits for it instead of computing it twice, and
lends that one its urgency (`prefixes`). If the other ends, its computed blocks stay, and the first waiter computes the rest.
Waiting for a prefix lets others pass; waiting for memory does not.

It knows no requests, no clock but `now_ns`, and no runner.
"""

from collections.abc import Iterator, Sequence

from headway.core.config import SchedulerConfig
from headway.engine.accounts import HIGH
from headway.engine.chunking import Room, decode_load, ns_per_prompt_token, target_ns
from headway.engine.memory import Memory
from headway.engine.policies.policy import NONE_PAUSED, Candidate, Planned, Policy, Queue
from headway.engine.policies.table import POLICIES
from headway.engine.prefixes import lenders
from headway.engine.speculation import with_drafts
from headway.engine.starts import Starts
from headway.engine.step_time import Load
from headway.engine.view import Admission, Chunk, Plan, S, View


def plan(view: View[S], limits: SchedulerConfig, now_ns: int) -> Plan[S]:
    """Return the next step for `view` within `limits`."""
    policy = POLICIES[limits.policy]
    paused = NONE_PAUSED if policy.pauses is None else policy.pauses(view, now_ns)
    step = _plan(view, limits, policy, now_ns, paused)
    if step is None:
        step = _plan(view, limits, policy, now_ns, NONE_PAUSED)
        assert step is not None, "nobody pauses"
    return step


def _plan(
    view: View[S], limits: SchedulerConfig, policy: Policy, now_ns: int, paused: frozenset[int]
) -> Plan[S] | None:
    """Return the next step. `paused`: orders of who stands still; None where that is for nothing, as no `high` is served."""
    lent = lenders(view, policy.hold)
    held: list[tuple[tuple[int, ...], S]] = [(policy.hold(lent.get(s.order, s)), s) for s in view.running]
    running = [sequence for _, sequence in sorted(held, key=lambda entry: entry[0])]
    memory = Memory(view)
    decoding, kept = _decode(running, memory, paused)
    admitted: list[Admission[S]] = []
    prefilling: list[Chunk[S]] = []
    if len(kept) > len(decoding) or view.waiting:
        load, target = decode_load(decoding), target_ns(limits, (chunk.sequence for chunk in decoding))
        queue = _queue(view, limits, kept, lent, load=load, target=target, now_ns=now_ns)
        room = Room(view.step_time, load, target, limits.max_prefill_tokens)
        starts = Starts(queue, policy, memory, kept, lent)
        admitted, prefilling = _prefill(queue, policy.pick(queue), room, starts)
    if paused and not any(lent.get(c.sequence.order, c.sequence).rank == HIGH for c in prefilling):
        return None
    if memory.preempted:
        lost = {sequence.order for sequence in memory.preempted}
        decoding = [chunk for chunk in decoding if chunk.sequence.order not in lost]
        prefilling = [chunk for chunk in prefilling if chunk.sequence.order not in lost]
    elif limits.max_draft_tokens and decoding and not prefilling:
        decoding = with_drafts(
            view, decoding, max_draft_tokens=limits.max_draft_tokens, num_available=memory.num_available
        )
    return Plan(preempted=memory.preempted, admitted=admitted, chunks=[*decoding, *prefilling])


def _decode(
    running: Sequence[S], memory: Memory[S], paused: frozenset[int]
) -> tuple[list[Chunk[S]], list[S]]:
    """Advance all that decode but the `paused`, preempting from the end of `running`; return the chunks, and who is left."""
    kept = list(running)
    chunks: list[Chunk[S]] = []
    position = 0
    while position < len(kept):
        sequence = kept[position]
        position += 1
        if not sequence.is_decoding or sequence.order in paused:
            continue
        missing = memory.missing_to_decode(sequence)
        while missing > memory.num_available and len(kept) >= position:  # the last victim may be itself
            memory.preempt(kept.pop())
        if len(kept) >= position:
            memory.take(missing)
            chunks.append(Chunk(sequence, sequence.num_tokens - sequence.num_computed, True))
    return chunks, kept


def _queue(
    view: View[S],
    limits: SchedulerConfig,
    kept: Sequence[S],
    lent: dict[int, S],
    *,
    load: Load,
    target: int | None,
    now_ns: int,
) -> Queue[S]:
    """Return what the policy picks from: prompts that are being computed, and all that wait."""
    candidates = [Candidate(s, lent.get(s.order, s)) for s in kept if not s.is_decoding]
    candidates += [Candidate(s, s) for s in view.waiting]
    return Queue(
        candidates=candidates,
        view=view,
        limits=limits,
        planned=Planned(),
        ns_per_token=ns_per_prompt_token(view.step_time, load, target, limits.max_prefill_tokens),
        now_ns=now_ns,
    )


def _prefill(
    queue: Queue[S], picks: Iterator[S], room: Room, starts: Starts[S]
) -> tuple[list[Admission[S]], list[Chunk[S]]]:
    """Give room to prompts in the order picked, those that start and those that have."""
    limits = queue.limits
    kept_free = limits.class_shares[0] / sum(limits.class_shares) if limits.lend_high == "never" else 0.0
    lent_room = room.part(1 - kept_free)  # what is not for high alone
    admitted: list[Admission[S]] = []
    chunks: list[Chunk[S]] = []
    num_started = sum(bool(candidate.sequence.table) for candidate in queue.candidates)
    for sequence in picks:
        if not room or (starts.closed and not num_started):
            break
        num_started -= bool(sequence.table)
        own = lent_room if sequence.rank and kept_free else room
        shared = () if sequence.table else starts.shared(sequence)
        if shared is None or sequence.is_restoring or sequence in starts.displaced:
            continue
        num_restored = 0 if sequence.table else queue.view.restorable(sequence, len(shared))
        if num_restored:
            if starts.start(sequence, shared):
                admitted.append(Admission(sequence, shared, num_restored))
            continue
        context = sequence.num_computed + len(shared) * queue.view.block_size
        remaining = sequence.num_tokens - context
        num_tokens = own.fit(context, remaining) if own else 0
        if not num_tokens:
            continue
        if not sequence.table:
            if not starts.start(sequence, shared):
                continue
            admitted.append(Admission(sequence, shared))
        chunks.append(Chunk(sequence, num_tokens, num_tokens == remaining))
        queue.planned.count(sequence, num_tokens)
        room.take(context, num_tokens)
        if own is not room:
            own.take(context, num_tokens)
    return admitted, chunks
