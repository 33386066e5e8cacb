"""Which running streams let a prompt of class `high` have their part of the step.

A step computes as many rows as its time allows, and a row of a running stream takes about what a prompt token takes: beside
a dozen streams a prompt is read at two thirds of its speed, though it is first in line. So in a step that carries a part of
a prompt of `high`, streams of `low` stand still. They lose nothing, nothing is computed twice, and they go on in the first
step that carries none, or after `PAUSE_NS` in any case: so `low` ends, though prompts of `high` never stop coming.

Who named an interval of his own gets it. Nobody pauses where `high` is over its share.
"""

from headway.core.clock import NS_PER_MS
from headway.engine.accounts import HIGH, LOW
from headway.engine.policies.policy import NONE_PAUSED
from headway.engine.view import S, SequenceView, View

PAUSE_NS = 150 * NS_PER_MS
"""Longest time since its last token at which a stream stands still: three steps of the default target. Twice as long brought
`high` nothing more in a simulation of a crowd (docs/log.md)."""


def pauses(view: View[S], now_ns: int) -> frozenset[int]:
    """Return the orders of the decoding sequences that stand still if the step carries a part of a prompt of `high`."""
    if not any(s.rank == HIGH and not s.is_decoding for s in (*view.running, *view.waiting)):
        return NONE_PAUSED
    if view.accounts.use(now_ns)[HIGH] >= 1:
        return NONE_PAUSED
    return frozenset(s.order for s in view.running if _may_pause(s, now_ns))


def _may_pause(sequence: SequenceView, now_ns: int) -> bool:
    return (
        sequence.rank == LOW
        and sequence.is_decoding
        and sequence.itl_target_ns is None
        and now_ns < sequence.last_token_ns + PAUSE_NS
    )
