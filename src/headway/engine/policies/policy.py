"""What a policy is: an order of who computes a prompt next, and who loses blocks first.

A policy sees candidates: sequences that compute their prompts, and those that wait. It knows no memory and no budget: the
scheduler takes one candidate after another until one of the two is used up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol

from headway.core.config import SchedulerConfig
from headway.engine.view import S, SequenceView, View


class Candidate(NamedTuple, Generic[S]):
    """`sequence` could compute a part of its prompt; it is as urgent as `urgent`: itself, or who waits for its blocks."""

    sequence: S
    urgent: S


@dataclass(slots=True)
class Planned:
    """Prompt tokens that the step has so far, by class (rank) and by tenant: the scheduler counts while a policy picks."""

    by_rank: list[int] = field(default_factory=lambda: [0, 0, 0])
    by_tenant: dict[str, int] = field(default_factory=dict)

    def count(self, sequence: SequenceView, num_tokens: int) -> None:
        """The step has `num_tokens` more of `sequence`'s prompt."""
        self.by_rank[sequence.rank] += num_tokens
        self.by_tenant[sequence.tenant] = self.by_tenant.get(sequence.tenant, 0) + num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Generic[S]):
    """What a policy picks from. `ns_per_token`: what computing a prompt takes at present; 0 = not known."""

    candidates: Sequence[Candidate[S]]
    view: View[S]
    limits: SchedulerConfig
    planned: Planned
    ns_per_token: float
    now_ns: int


class Pick(Protocol):
    """Yields candidates, most urgent first, each once; what is left out may not start in this step."""

    def __call__(self, queue: Queue[S], /) -> Iterator[S]:
        """Return the iterator; it may look at `queue.planned` between two candidates."""
        ...


NONE_PAUSED: Final = frozenset[int]()

HoldKey = Callable[[SequenceView], tuple[Any, ...]]


class Policy(NamedTuple):
    """One policy.

    pick        who computes next
    hold        sorts running sequences: the last one loses its blocks first. The first is never preempted, so that it
                ends and another becomes the first: nothing about a sequence that this looks at may change
    displaces   (queue, waiting sequence) → whether it may take slot and blocks of a worse class's running ones; None =
                never
    pauses      (view, now_ns) → orders of decoding sequences that stand still in a step that carries a prompt of `high`;
                None = nobody
    """

    pick: Pick
    hold: HoldKey
    displaces: Callable[[Queue[Any], Any], bool] | None = None
    pauses: Callable[[View[Any], int], frozenset[int]] | None = None


def by_arrival(sequence: SequenceView) -> tuple[int, ...]:
    """Hold key: the latest arrival goes first."""
    return (sequence.order,)


def by_class(sequence: SequenceView) -> tuple[int, ...]:
    """Hold key: the lowest class goes first, of it the latest arrival."""
    return (sequence.rank, sequence.order)
