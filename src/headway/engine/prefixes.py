"""Sequences that need blocks which another one is computing: they wait for it, and lend it their urgency. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from headway.engine.view import S, View


def computing(view: View[S], waiter: S, candidates: Sequence[S]) -> S | None:
    """Return the sequence that is computing the first block `waiter` lacks, if that block can be shared at all."""
    related = [other for other in candidates if _may_compute_for(other, waiter)]
    if not related:
        return None
    num_matched = len(view.match(waiter))
    if num_matched >= (waiter.num_tokens - 1) // view.block_size:
        return None
    wanted = waiter.keys[num_matched]
    for other in related:
        if other.num_shared <= num_matched < len(other.keys) and other.keys[num_matched] == wanted:
            return other
    return None


def lenders(view: View[S], hold: Callable[[S], tuple[Any, ...]]) -> dict[int, S]:
    """Return who waits for whom: order of a computing sequence → its most urgent waiter, if more urgent than itself."""
    prefilling = [s for s in view.running if not s.is_decoding and s.shares]
    if not prefilling:
        return {}
    last = max(map(hold, prefilling))
    lent: dict[int, S] = {}
    for waiter in view.waiting:
        urgency = hold(waiter)
        if urgency > last:
            continue
        other = computing(view, waiter, prefilling)
        if other is not None and urgency < hold(lent.get(other.order, other)):
            lent[other.order] = waiter
    return lent


def _may_compute_for(other: S, waiter: S) -> bool:
    """Whether the first block that `other` has not shared is in `waiter`, too; if not, so is none of those after it.

    One comparison instead of a look at the cache, which for 1,000 waiting with a prefix of 4,000 tokens took 38 ms a step.
    """
    first = other.num_shared
    keys, wanted = other.keys, waiter.keys
    return other.shares and first < len(keys) and first < len(wanted) and keys[first] == wanted[first]
