"""When a request's first token would come, and whether that keeps its promise (S5). Pure; asked once, when it arrives.

The wait is the prompt tokens that go before it, times what a prompt token takes at present. Which go before follows from
how the `slo` policy divides the engine:

- Of its own tenant those due no later. Of other tenants of its class as many as its tenant has before it, itself included:
  while all of them wait they are served alike (the finish time of fair queueing, Demers and others, SIGCOMM 1989).
- Of other classes as many as their shares allow while its own class is served: better classes always, worse ones only where
  its own is over its share. Besides, it gets no more than what better classes, and tenants served less than its own,
  left of the last seconds, or its fair part of its class's share if that is more.
- Where no slot will be free: until enough of those in front have ended, at the rate that recent answers' lengths suggest,
  but for those that may not become so long.

It knows no memory: a start that lacks blocks waits longer than predicted.
"""

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.config import SchedulerConfig
from headway.core.errors import DeadlineUnmet
from headway.engine.chunking import aim_ns, attended, ns_per_prompt_token, target_ns
from headway.engine.step_time import Load
from headway.engine.view import S, SequenceView, View

STRETCH = 4
"""A class's deadline is at least so many times what the prompt takes alone: a long prompt is not late for being long."""


class Forecast(NamedTuple):
    """Predicted ns: `wait_ns` before anything of it is computed, `own_ns` for its own prompt. Both 0: nothing is known."""

    wait_ns: float
    own_ns: float


def deadline_ns(
    ttft_ns: int | None, rank: int, arrival_ns: int, own_ns: float, limits: SchedulerConfig
) -> int:
    """Return when a first token is due: `ttft_ns` after arrival, or what its class promises."""
    if ttft_ns is not None:
        return arrival_ns + ttft_ns
    promised_s = (limits.high_ttft_s, limits.normal_ttft_s, limits.low_ttft_s)[rank]
    return arrival_ns + int(max(promised_s * NS_PER_S, STRETCH * own_ns))


def own_ns(num_tokens: int, view: View[S], limits: SchedulerConfig) -> float:
    """Return how long a prompt takes of which `num_tokens` are not cached, while nothing else runs."""
    alone = Load(0, 0, 0, 0)
    per_token = ns_per_prompt_token(view.step_time, alone, target_ns(limits, ()), limits.max_prefill_tokens)
    return _prompt_ns(num_tokens, per_token, view)


def forecast(
    new: SequenceView, view: View[S], limits: SchedulerConfig, mean_output: float, now_ns: int
) -> Forecast:
    """Return when `new`, which has just come, would be computed. `mean_output`: tokens of recent answers."""
    decoding = [s for s in view.running if s.is_decoding]
    ahead = [s for s in (*view.running, *view.waiting) if not s.is_decoding and s.order != new.order]
    # While it waits, those before it begin to decode.
    num_running = min(limits.max_num_seqs, len(decoding) + len(ahead) // 2)
    context = sum(s.num_computed for s in decoding)
    mean_context = (
        context / len(decoding) if decoding else sum(s.num_prompt for s in ahead) / max(1, len(ahead))
    )
    load = Load(0, num_running, int(mean_context * num_running), 0)
    target = target_ns(limits, decoding)
    per_token_ns = ns_per_prompt_token(view.step_time, load, target, limits.max_prefill_tokens)
    if not per_token_ns:
        return Forecast(0.0, 0.0)
    num_before = _tokens_before(new, ahead, view, now_ns)
    slots_ns = _slots_ns(new, view, limits, len(ahead), mean_output, target, load)
    step_ns = 0.0  # the one it comes in: it waits for its end
    if view.running or ahead:
        step_ns = view.step_time.of(load) if target is None else aim_ns(target, view.step_time)
    return Forecast(
        max(num_before * per_token_ns, slots_ns) + step_ns,
        _prompt_ns(new.num_left, per_token_ns, view),
    )


def lateness(
    new: SequenceView, predicted: Forecast, factor: float, own_alone_ns: float, now_ns: int
) -> DeadlineUnmet | None:
    """Return why `new` is refused: its first token would come too late. None = it is expected in time.

    factor         by which predicted waits have to be longer to be kept (`forecast_check`)
    own_alone_ns   what its prompt takes on an idle server
    """
    left_ns = new.deadline_ns - now_ns
    needed_ns = predicted.wait_ns * factor + predicted.own_ns
    if left_ns > needed_ns or (left_ns > 0 and not needed_ns):
        return None
    retry_after_s = max(1.0, predicted.wait_ns / NS_PER_S)
    if left_ns <= 0:
        return DeadlineUnmet(
            "The first token's deadline had passed when the request came; ask for it later, or send the request sooner.",
            retry_after_s=retry_after_s,
        )
    if left_ns <= own_alone_ns:
        return DeadlineUnmet(
            f"The first token takes {_told(own_alone_ns)} even on an idle server, and is due in {_told(left_ns)}; "
            "allow more time or shorten the prompt.",
            retry_after_s=retry_after_s,
        )
    return DeadlineUnmet(
        f"The first token would come in {_told(needed_ns)} and is due in {_told(left_ns)}; retry in {ceil(retry_after_s)} s "
        "or allow more time.",
        retry_after_s=retry_after_s,
    )


def _told(ns: float) -> str:
    return f"{ns / NS_PER_S:.2f} s" if ns >= NS_PER_S else f"{ns / NS_PER_MS:.1f} ms"


def _prompt_ns(num_tokens: int, per_token_ns: float, view: View[S]) -> float:
    """Return what a prompt takes of which `num_tokens` are to be computed, with what they attend to."""
    return num_tokens * per_token_ns + attended(0, num_tokens) * view.step_time.per_attended_ns


def _tokens_before(new: SequenceView, ahead: Iterable[SequenceView], view: View[S], now_ns: int) -> float:
    """Return how many prompt tokens are computed before the first of `new`."""
    by_tenant: dict[str, int] = {}
    by_rank = [0, 0, 0]
    own = 0
    for other in ahead:
        by_rank[other.rank] += other.num_left
        if other.rank != new.rank:
            continue
        if other.tenant != new.tenant:
            by_tenant[other.tenant] = by_tenant.get(other.tenant, 0) + other.num_left
        elif other.deadline_ns <= new.deadline_ns or other.is_resuming:
            own += other.num_left
    through = own + new.num_left  # what its tenant has had when it is done
    before = float(own) + sum(min(tokens, through) for tokens in by_tenant.values())
    tokens, shares = view.accounts.window(now_ns)
    total = sum(tokens) + view.accounts.spare_tokens(now_ns)
    parts = [t / total if total else 0.0 for t in tokens]
    over = view.accounts.use(now_ns)[new.rank] > 1
    served = before + new.num_left
    others = sum(
        min(by_rank[rank], served * shares[rank] / shares[new.rank])
        for rank in range(3)
        if rank < new.rank or (over and rank > new.rank)
    )
    num_tenants, tenants_tokens = view.accounts.overtaking(new.rank, new.tenant, now_ns)
    of_tenants = tenants_tokens / total if total else 0.0
    busy = sum(shares[rank] for rank in range(3) if rank == new.rank or by_rank[rank] or tokens[rank])
    of_class = max(shares[new.rank] / busy, 1 - sum(parts[: new.rank]))
    left = max(of_class / (1 + num_tenants), of_class - of_tenants)
    return max(before + others, through / left - new.num_left)


def _slots_ns(
    new: SequenceView,
    view: View[S],
    limits: SchedulerConfig,
    num_ahead: int,
    mean_output: float,
    target: int | None,
    load: Load,
) -> float:
    """Return how long it waits for a slot."""
    missing = len(view.running) + len(view.waiting) + 1 - limits.max_num_seqs
    missing -= sum(s.rank > new.rank for s in (*view.running, *view.waiting))  # whose place it may take
    if missing <= 0:
        return 0.0
    step_ns = view.step_time.of(load)
    if num_ahead and target is not None:
        step_ns = max(step_ns, aim_ns(target, view.step_time))
    answers = [min(mean_output, s.max_tokens) for s in (*view.running, *view.waiting)]
    # By all slots: those that came just before have not started yet, but will end side by side.
    return missing * sum(answers) / len(answers) * step_ns / limits.max_num_seqs
