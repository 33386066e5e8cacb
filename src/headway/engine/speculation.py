"""Decides how many draft tokens each decoding sequence carries. Pure.

A draft token lengthens the step of all by a row and shortens its own sequence's way by a token, if it is right. What is
maximised is the product of all sequences' tokens per second (proportional fairness, Kelly 1998): for one sequence that is
its speed; in a batch nobody is slowed down for another's small gain. So drafts grow with the chance that they are right,
shrink with the batch, and end where a step is bound by computing instead of by memory. Choosing drafts by the step's
predicted time: arXiv 2406.14066.

Drafts take no memory from anybody: a block only if nobody waits for memory, and enough stay for all to go on.
"""

from collections.abc import Mapping
from math import log

from headway.engine.drafts import Draft
from headway.engine.view import Chunk, S, View

MAX_COMPUTE_SHARE = 0.8
"""Where this much of a step is rows, drafts gain less than a tenth at best: no look at them."""
MAX_DRAFTING = 16
"""Most sequences that are asked for drafts, 15 µs each."""
MIN_GAIN = 0.02
"""Smallest gain worth a draft, in log tokens per second and sequence: below the cost's own error."""


def with_drafts(
    view: View[S], decoding: list[Chunk[S]], *, max_draft_tokens: int, num_available: int
) -> list[Chunk[S]]:
    """Return `decoding`, each chunk with the draft that it carries. `num_available`: blocks left after them."""
    num_sequences = len(decoding)
    if num_sequences > MAX_DRAFTING:
        return decoding
    if view.cost.per_row * num_sequences > MAX_COMPUTE_SHARE * view.cost.of(num_sequences):
        return decoding
    num_spare = 0 if view.waiting else num_available - num_sequences
    drafts: dict[int, Draft] = {}
    for index, chunk in enumerate(decoding):
        sequence = chunk.sequence
        room = min(max_draft_tokens, sequence.num_draftable)
        if room <= 0:
            continue
        draft = view.draft(sequence, room)
        if not draft.tokens:
            continue
        room, num_blocks = _fitting(view, sequence, len(draft.tokens), num_spare)
        num_spare -= num_blocks
        drafts[index] = draft._replace(tokens=draft.tokens[:room])
    lengths = _lengths(view, num_sequences, drafts)
    return [
        chunk._replace(draft=drafts[index].tokens[: lengths[index]]) if index in lengths else chunk
        for index, chunk in enumerate(decoding)
    ]


def _fitting(view: View[S], sequence: S, num_tokens: int, num_spare: int) -> tuple[int, int]:
    """Return how many of `num_tokens` draft tokens fit, and how many blocks they take."""
    size = view.block_size
    held = max(len(sequence.table), -(-sequence.num_tokens // size))
    missing = -(-(sequence.num_tokens + num_tokens) // size) - held
    if missing > num_spare:
        missing = max(0, num_spare)
        num_tokens = (held + missing) * size - sequence.num_tokens
    return num_tokens, max(0, missing)


def _lengths(view: View[S], num_sequences: int, drafts: Mapping[int, Draft]) -> dict[int, int]:
    """Return how many tokens of each draft are worth their rows; none is left out.

    The gains of a sequence's tokens fall, so that taking the largest first takes each draft from its beginning.
    """
    gains: list[tuple[float, int]] = []
    for index, draft in drafts.items():
        chance, expected = draft.odds.first, 1.0
        for _ in draft.tokens:
            gains.append((log(1 + chance / expected), index))
            expected += chance
            chance *= draft.odds.further
    gains.sort(key=lambda gain: -gain[0])
    cost = view.cost
    base = log(cost.of(num_sequences))
    best, num_best, gained = MIN_GAIN * num_sequences, 0, 0.0
    for count, (gain, _) in enumerate(gains, start=1):
        gained += gain
        total = gained - num_sequences * (log(cost.of(num_sequences + count)) - base)
        if total > best:
            best, num_best = total, count
    lengths: dict[int, int] = {}
    for _, index in gains[:num_best]:
        lengths[index] = lengths.get(index, 0) + 1
    return lengths
