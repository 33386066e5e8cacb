"""Shortest answer first, then the better class, then arrival: row S1's second policy.

It knows how long an answer may become, not how long it will be; and a stream of short ones keeps a long one waiting for
ever. It is here for comparison.
"""

from collections.abc import Iterator

from headway.engine.policies.policy import Queue
from headway.engine.view import S


def shortest(queue: Queue[S]) -> Iterator[S]:
    """Yield by (max_tokens, class, arrival)."""
    for candidate in sorted(
        queue.candidates, key=lambda c: (c.urgent.max_tokens, c.urgent.rank, c.urgent.order)
    ):
        yield candidate.sequence
