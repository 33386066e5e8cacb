"""Batches of prompts of about one length, cut by a token budget: row E5.

A prompt's bucket is its length rounded up to a power of two, 2048 at most. Only prompts of one bucket, that of the oldest
which waits, start together, and what runs may fill `BATCH_TOKENS` at most, each sequence counting as its bucket. So short
prompts run in large batches and long ones in small ones.
"""

from collections.abc import Iterator

from headway.engine.policies.policy import Queue
from headway.engine.view import S

MAX_BUCKET = 2048
BATCH_TOKENS = 8192


def bucket(num_tokens: int) -> int:
    """Return the bucket of a prompt.

    >>> [bucket(n) for n in (1, 64, 65, 1500, 100_000)]
    [1, 64, 128, 2048, 2048]
    """
    return min(MAX_BUCKET, 1 << (num_tokens - 1).bit_length())


def bucketed(queue: Queue[S]) -> Iterator[S]:
    """Yield what has started, by arrival, then what waits in the oldest one's bucket, as far as the batch has room."""
    room = BATCH_TOKENS - sum(bucket(sequence.num_prompt) for sequence in queue.view.running)
    chosen: int | None = None
    num_yielded = len(queue.view.running)
    for candidate in sorted(queue.candidates, key=lambda c: c.urgent.order):
        sequence = candidate.sequence
        if sequence.num_computed or sequence.table:
            yield sequence
            continue
        size = bucket(sequence.num_prompt)
        chosen = size if chosen is None else chosen
        if size != chosen:
            continue
        if size > room and num_yielded:
            return
        room -= size
        num_yielded += 1
        yield sequence
