"""First come, first served."""

from collections.abc import Iterator

from headway.engine.policies.policy import Queue
from headway.engine.view import S


def fcfs(queue: Queue[S]) -> Iterator[S]:
    """Yield by arrival."""
    for candidate in sorted(queue.candidates, key=lambda c: c.urgent.order):
        yield candidate.sequence
