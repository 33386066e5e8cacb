"""Keeps promises: shares for classes, fairness between tenants, and within those the least slack first.

Classes. Who has had less than its share of the last five seconds goes first, the better class before the worse; so high goes
first up to its share. What a class leaves is lent: where all that wait exceed their shares, the one that exceeds it least.

Tenants of a class. The one served least goes first (`accounts`); those ahead of it by less than a second of service count as
equal, and deadlines decide between them: with no lead at all long prompts of several tenants would be computed in turns, a
chunk each, and all be late.

Within a tenant: preempted streams, which somebody reads; then by slack, that is, until when a prompt could begin and still
be in time. Later arrivals are due later, so that everyone's turn comes (ageing); who is late already goes first. To let the
late wait instead, as the books have it for overload, gains nothing where admission keeps them few, and left one of twelve
waiting for 39 s (docs/log.md).

Deadlines and slack: Liu and Layland, JACM 20/1, 1973; past saturation: Locke, CMU-CS-86-134, 1986.
"""

from collections.abc import Iterator

from headway.engine.accounts import INPUT_WEIGHT
from headway.engine.policies.policy import Candidate, Queue
from headway.engine.policies.turns import equals, next_rank
from headway.engine.view import S

_Key = tuple[int, int]
_Entry = tuple[_Key, int, S]
"""(urgency, order, sequence): compared in that order, and no two have one order."""


def slo(queue: Queue[S]) -> Iterator[S]:
    """Yield by class, tenant and slack, each of them as they stand when the next one is asked for."""
    waiting = _by_class_and_tenant(queue)
    while waiting:
        use = queue.view.accounts.use(queue.now_ns, queue.planned.by_rank)
        rank = next_rank(waiting, use)
        tenants = waiting[rank]
        tenant = _tenant(tenants, queue)
        yield tenants[tenant].pop()[2]
        if not tenants[tenant]:
            del tenants[tenant]
            if not tenants:
                del waiting[rank]


def within_share(queue: Queue[S], sequence: S) -> bool:
    """Whether the class of `sequence` has had less than its share: then it may take what worse classes were lent."""
    return queue.view.accounts.use(queue.now_ns, queue.planned.by_rank)[sequence.rank] < 1


def _by_class_and_tenant(queue: Queue[S]) -> dict[int, dict[str, list[_Entry[S]]]]:
    """Return the candidates by rank and tenant, the most urgent last."""
    groups: dict[int, dict[str, list[_Entry[S]]]] = {}
    for candidate in queue.candidates:
        urgent = candidate.urgent
        entry = (_urgency(candidate, queue.ns_per_token), urgent.order, candidate.sequence)
        groups.setdefault(urgent.rank, {}).setdefault(urgent.tenant, []).append(entry)
    for tenants in groups.values():
        for entries in tenants.values():
            entries.sort(key=lambda entry: entry[:2], reverse=True)
    return groups


def _urgency(candidate: Candidate[S], ns_per_token: float) -> _Key:
    urgent = candidate.urgent
    if urgent.is_resuming:
        return (0, urgent.order)
    # By the whole prompt, not by what is left of it: else each chunk would make room for another one, and all be late.
    return (1, urgent.deadline_ns - int(candidate.sequence.num_expected * ns_per_token))


def _tenant(tenants: dict[str, list[_Entry[S]]], queue: Queue[S]) -> str:
    """Return whose turn it is."""
    if len(tenants) == 1:
        return next(iter(tenants))
    served, planned = queue.view.accounts.served, queue.planned.by_tenant
    had = {name: served.get(name, 0) + INPUT_WEIGHT * planned.get(name, 0) for name in tenants}
    return min(equals(had, queue.view.accounts.lead(queue.now_ns)), key=lambda name: tenants[name][-1][:2])
