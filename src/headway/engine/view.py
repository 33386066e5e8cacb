"""What the scheduler may see and what it answers: a read-only view of the engine, and a plan.

The view reads the engine's own objects through read-only types instead of copying them: at 1,000 waiting requests a copy
would cost more than planning. Whoever plans must not keep it past the step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from headway.engine.accounts import Accounts
from headway.engine.drafts import Draft
from headway.engine.step_cost import StepCost
from headway.engine.step_time import StepTime
from headway.kv.prefix_cache import BlockKey


class SequenceView(Protocol):
    """A sequence as the scheduler sees it."""

    @property
    def order(self) -> int:
        """Place in the order of arrival, unique."""
        ...

    @property
    def is_decoding(self) -> bool:
        """Whether all tokens but the last one drawn are in the KV cache."""
        ...

    @property
    def is_restoring(self) -> bool:
        """Whether blocks computed earlier are on their way back; it computes nothing meanwhile."""
        ...

    @property
    def rank(self) -> int:
        """Class of service: 0 = high, 1 = normal, 2 = low."""
        ...

    @property
    def tenant(self) -> str:
        """Whom its tokens are accounted to."""
        ...

    @property
    def arrival_ns(self) -> int:
        """When its request came."""
        ...

    @property
    def deadline_ns(self) -> int:
        """When its first token is due."""
        ...

    @property
    def itl_target_ns(self) -> int | None:
        """Most that a step may take while it decodes; None = as configured."""
        ...

    @property
    def last_token_ns(self) -> int:
        """When its last token was drawn; 0 = none was yet."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens it may generate."""
        ...

    @property
    def num_prompt(self) -> int:
        """Tokens of its prompt."""
        ...

    @property
    def num_left(self) -> int:
        """Tokens to compute before its next token can be drawn; while it waits an estimate, from when it came."""
        ...

    @property
    def num_expected(self) -> int:
        """Prompt tokens that had to be computed when it came."""
        ...

    @property
    def is_resuming(self) -> bool:
        """Whether it was preempted, or its engine ended, after its first token, and it does not decode yet again."""
        ...

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        ...

    @property
    def num_computed(self) -> int:
        """Tokens whose K and V are in the cache."""
        ...

    @property
    def table(self) -> Sequence[int]:
        """Blocks held; none while waiting."""
        ...

    @property
    def keys(self) -> Sequence[BlockKey]:
        """Keys of the full blocks, computed or not."""
        ...

    @property
    def num_shared(self) -> int:
        """How many leading blocks of `table` others can already share."""
        ...

    @property
    def shares(self) -> bool:
        """Whether blocks this sequence computes will become shareable."""
        ...

    @property
    def num_draftable(self) -> int:
        """Most draft tokens that the next step may carry: with them and one more its limit is reached."""
        ...


S = TypeVar("S", bound=SequenceView)


def _nothing_restorable(_sequence: SequenceView, _num_shared: int) -> int:
    """There is no KV outside the block pool."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Generic[S]):
    """The engine between two steps.

    running       sequences that hold blocks, in any order
    waiting       sequences that hold none, by `order`
    block_size    tokens in a block
    num_available blocks that can be allocated, evicting what nobody uses
    references    block → number of sequences that hold it
    match         sequence → cached blocks it could start from
    draft         (decoding sequence, most tokens) → what may come next; asked at most once a step
    cost          what a step takes that carries no prompt
    step_time     what any step takes
    accounts      who was served how much; to be read only
    restorable    (waiting sequence, blocks it shares) → how many of the next ones had better be brought back than computed
    """

    running: Sequence[S]
    waiting: Sequence[S]
    block_size: int
    num_available: int
    references: Callable[[int], int]
    match: Callable[[S], Sequence[int]]
    draft: Callable[[S, int], Draft]
    cost: StepCost
    step_time: StepTime
    accounts: Accounts
    restorable: Callable[[S, int], int] = _nothing_restorable


class Chunk(NamedTuple, Generic[S]):
    """The next `num_tokens` tokens of a sequence; `draws`: they reach its end, so that a token is sampled.

    draft   tokens that are computed behind them, a token being sampled at each; only of a decoding sequence
    """

    sequence: S
    num_tokens: int
    draws: bool
    draft: tuple[int, ...] = ()


class Admission(NamedTuple, Generic[S]):
    """A waiting sequence that starts from these cached blocks; it is given blocks for all its tokens at once.

    num_restored   how many blocks behind them are brought back first; it has a chunk only if there are none
    """

    sequence: S
    shared: Sequence[int]
    num_restored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[S]):
    """One step, to be carried out in this order: release the preempted, share, allocate, compute the chunks.

    Chunks of decoding sequences come first. A sequence has at most one chunk; an admitted one that restores nothing has
    exactly one.
    """

    preempted: Sequence[S]
    admitted: Sequence[Admission[S]]
    chunks: Sequence[Chunk[S]]

    @property
    def moves(self) -> bool:
        """Whether there is anything to carry out."""
        return bool(self.preempted or self.admitted or self.chunks)
