"""Views for the scheduler, made by hand: sequences as values."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.config import SchedulerConfig
from headway.engine.acceptance import Odds
from headway.engine.accounts import Accounts
from headway.engine.drafts import Draft
from headway.engine.step_cost import StepCost
from headway.engine.step_time import StepTime
from headway.engine.view import View
from headway.kv.prefix_cache import BlockKey, PrefixChain

BLOCK_SIZE = 4


@dataclass(frozen=True, kw_only=True)
class Seq:
    """A sequence as a value."""

    order: int
    num_tokens: int
    num_computed: int = 0
    is_decoding: bool = False
    is_restoring: bool = False
    table: Sequence[int] = ()
    num_shared: int = 0
    shares: bool = True
    prompt_id: int = -1
    keys: Sequence[BlockKey] = field(default=())
    num_draftable: int = 0
    rank: int = 1
    tenant: str = ""
    arrival_ns: int = 0
    deadline_ns: int = 10**10
    itl_target_ns: int | None = None
    max_tokens: int = 100
    is_resuming: bool = False
    last_token_ns: int = 0

    @property
    def num_prompt(self) -> int:
        return self.num_tokens

    @property
    def num_expected(self) -> int:
        return self.num_tokens

    @property
    def num_left(self) -> int:
        return self.num_tokens - self.num_computed


NO_DRAFT = Draft((), Odds(0.0, 0.0))


def keys(prompt_id: int, num_tokens: int) -> Sequence[BlockKey]:
    chain = PrefixChain((str(prompt_id), 0), BLOCK_SIZE)
    chain.extend(array("i", range(num_tokens)), num_tokens)
    return chain.keys


def decoding(order: int, num_tokens: int, table: Sequence[int], num_draftable: int = 0) -> Seq:
    return Seq(
        order=order,
        num_tokens=num_tokens,
        num_computed=num_tokens - 1,
        is_decoding=True,
        table=table,
        num_draftable=num_draftable,
    )


def prefilling(
    order: int, num_tokens: int, num_computed: int = 0, prompt_id: int | None = None, shares: bool = True
) -> Seq:
    blocks = -(-num_tokens // BLOCK_SIZE)
    return Seq(
        order=order,
        num_tokens=num_tokens,
        num_computed=num_computed,
        table=tuple(range(100 * order, 100 * order + blocks)),
        num_shared=num_computed // BLOCK_SIZE,
        shares=shares,
        keys=keys(order if prompt_id is None else prompt_id, num_tokens),
    )


def waiting(order: int, num_tokens: int, prompt_id: int | None = None) -> Seq:
    return Seq(
        order=order, num_tokens=num_tokens, keys=keys(order if prompt_id is None else prompt_id, num_tokens)
    )


def view(
    running: Sequence[Seq] = (),
    queue: Sequence[Seq] = (),
    *,
    num_available: int = 100,
    matches: Mapping[int, Sequence[int]] | None = None,
    references: Mapping[int, int] | None = None,
    drafts: Mapping[int, Draft] | None = None,
    cost: StepCost | None = None,
    step_time: StepTime | None = None,
    accounts: Accounts | None = None,
) -> View[Seq]:
    held: dict[int, int] = {}
    for sequence in running:
        for block in sequence.table:
            held[block] = held.get(block, 0) + 1
    held.update(references or {})
    return View(
        running=running,
        waiting=queue,
        block_size=BLOCK_SIZE,
        num_available=num_available,
        references=lambda block: held.get(block, 0),
        match=lambda sequence: (matches or {}).get(sequence.order, ()),
        draft=lambda sequence, max_tokens: cut((drafts or {}).get(sequence.order, NO_DRAFT), max_tokens),
        cost=cost or StepCost(),
        step_time=step_time or StepTime(),
        accounts=accounts or Accounts(SchedulerConfig().class_shares),
    )


def cut(draft: Draft, max_tokens: int) -> Draft:
    return draft._replace(tokens=draft.tokens[:max_tokens])
