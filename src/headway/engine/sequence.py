"""One choice of one request: its tokens, its blocks, and where it stands in its life.

    WAITING ──admit──▶ PREFILL ──caught_up──▶ DECODE
     │ ▲                ▲ │                      │
     │ └─────preempt────│─┴───────preempt────────┘         every state ──finish──▶ FINISHED
     │                  │ restored
     └──restore──▶ RESTORING ──preempt──▶ WAITING

The transitions are the table `TRANSITIONS`, and nothing else changes a state. A sequence advances by a list of tokens and
can be truncated, so that several tokens a step (speculation) need no other life cycle. It knows no scheduler and no runner.
"""

from array import array
from collections.abc import Sequence as ReadOnly
from enum import Enum

from headway.core.request import Request
from headway.engine.accounts import RANKS
from headway.engine.drafts import Draft, Drafter
from headway.engine.grammars import Matcher
from headway.engine.pooling import Pooler
from headway.engine.promise import Forecast
from headway.kv.prefix_cache import BlockKey, PrefixChain


class State(Enum):
    """Where a sequence stands. WAITING holds no blocks; RESTORING, PREFILL and DECODE do; FINISHED never moves again.

    RESTORING: blocks computed earlier are on their way back into the KV cache; nothing is computed meanwhile.
    """

    WAITING = "waiting"
    RESTORING = "restoring"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class Move(Enum):
    """What happens to a sequence."""

    ADMIT = "admit"
    RESTORE = "restore"
    RESTORED = "restored"
    CAUGHT_UP = "caught up"
    PREEMPT = "preempt"
    FINISH = "finish"


TRANSITIONS: dict[tuple[State, Move], State] = {
    (State.WAITING, Move.ADMIT): State.PREFILL,
    (State.WAITING, Move.RESTORE): State.RESTORING,
    (State.WAITING, Move.FINISH): State.FINISHED,
    (State.RESTORING, Move.RESTORED): State.PREFILL,
    (State.RESTORING, Move.PREEMPT): State.WAITING,
    (State.RESTORING, Move.FINISH): State.FINISHED,
    (State.PREFILL, Move.CAUGHT_UP): State.DECODE,
    (State.PREFILL, Move.PREEMPT): State.WAITING,
    (State.PREFILL, Move.FINISH): State.FINISHED,
    (State.DECODE, Move.PREEMPT): State.WAITING,
    (State.DECODE, Move.FINISH): State.FINISHED,
}


class IllegalMove(Exception):
    """A sequence was asked to do what its state does not allow: a bug of the caller."""


class Sequence:
    """Tokens, blocks and state of one choice. The engine owns it; `order` is its unique place in arrival.

    tokens        'i' (num_tokens,)  prompt, then what was generated
    table         'i'  block ids; holds at least the computed tokens
    num_computed  tokens whose K and V are in `table`
    num_asked     tokens that the caller sent: the prompt less what an earlier run generated
    num_shared    leading blocks of `table` that are in the prefix cache
    has_started   whether it ever ran, be it waiting again now
    shares        False once a digest collided: blocks are no longer offered to the prefix cache
    drafter       guesses what comes next; None until it is first asked
    pooler        collects hidden states, of a request for an embedding; such a sequence never decodes
    rank          class of service: 0 = high, 1 = normal, 2 = low
    arrival_ns    when its request came to the gateway
    deadline_ns   when its first token is due
    num_expected  tokens that it will have to compute, estimated when it came: its prompt less what was cached of it
    last_token_ns when its last token was drawn; 0 = none was yet
    forecast      when its first token was predicted, from forecast_at_ns; None = it was not
    """

    __slots__ = (
        "arrival_ns",
        "chain",
        "choice",
        "deadline_ns",
        "drafter",
        "forecast",
        "forecast_at_ns",
        "has_started",
        "is_decoding",
        "is_restoring",
        "itl_target_ns",
        "last_token_ns",
        "matcher",
        "max_tokens",
        "num_asked",
        "num_computed",
        "num_expected",
        "num_prompt",
        "num_shared",
        "order",
        "pooler",
        "rank",
        "request",
        "shares",
        "state",
        "table",
        "tenant",
        "tokens",
    )

    def __init__(
        self,
        request: Request,
        choice: int,
        order: int,
        chain: PrefixChain,
        *,
        arrival_ns: int = 0,
        deadline_ns: int = 0,
        num_expected: int | None = None,
    ) -> None:
        self.request = request
        self.rank = RANKS[request.service_class]
        self.tenant = request.tenant
        self.itl_target_ns = request.itl_target_ns
        self.max_tokens = request.max_tokens
        self.arrival_ns = arrival_ns
        self.deadline_ns = deadline_ns
        self.num_expected = len(request.token_ids) if num_expected is None else num_expected
        self.forecast_at_ns = 0
        self.forecast: Forecast | None = None
        self.choice = choice
        self.order = order
        self.chain = chain
        self.tokens = array("i", request.token_ids)
        self.num_prompt = len(self.tokens)
        self.num_asked = self.num_prompt - request.num_resumed
        self.table = array("i")
        self.num_computed = 0
        self.num_shared = 0
        self.pooler = None if request.pooling is None else Pooler(request.pooling)
        # A mean needs every position's hidden state, which the cache does not keep; its blocks serve nobody else.
        self.shares = request.pooling != "mean"
        self.state = State.WAITING
        self.has_started = False
        self.is_decoding = False
        self.is_restoring = False
        self.last_token_ns = 0
        self.matcher: Matcher | None = None
        self.drafter: Drafter | None = None
        chain.extend(self.tokens, self.num_prompt)

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.tokens)

    @property
    def num_output(self) -> int:
        """Tokens generated by this sequence."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_left(self) -> int:
        """Tokens to compute before the next one can be drawn; before it computes, what was expected when it came."""
        if self.state is State.WAITING or self.is_restoring:
            return self.num_expected + self.num_output
        return len(self.tokens) - self.num_computed

    @property
    def is_resuming(self) -> bool:
        """Whether it was preempted, or its engine ended, after its first token, and it does not decode yet again."""
        return not self.is_decoding and len(self.tokens) > self.num_asked

    @property
    def num_draftable(self) -> int:
        """Most draft tokens of a step: one more token is drawn behind them. None where a grammar decides."""
        return 0 if self.matcher is not None else self.request.max_tokens - self.num_output - 1

    def draft(self, max_tokens: int) -> Draft:
        """Return what may come next, at most `max_tokens`."""
        if self.drafter is None:
            self.drafter = Drafter(self.tokens, self.request.stop_token_ids)
        return self.drafter.propose(max_tokens)

    @property
    def keys(self) -> ReadOnly[BlockKey]:
        """Keys of the full blocks."""
        return self.chain.keys

    def _move(self, move: Move) -> None:
        target = TRANSITIONS.get((self.state, move))
        if target is None:
            raise IllegalMove(f"a sequence that is {self.state.value} cannot {move.value}")
        self.state = target
        self.is_decoding = target is State.DECODE
        self.is_restoring = target is State.RESTORING

    def admit(self, num_blocks: int, *, restores: bool = False) -> None:
        """Start (again); the caller has opened the table with `num_blocks` cached blocks, and may be restoring more."""
        self._move(Move.RESTORE if restores else Move.ADMIT)
        self.has_started = True
        self.num_computed = num_blocks * self.chain.block_size
        self.num_shared = num_blocks

    def restored(self, num_blocks: int) -> None:
        """Note that the next `num_blocks` of the table hold what they should; the rest is computed."""
        self._move(Move.RESTORED)
        self.num_computed += num_blocks * self.chain.block_size

    def advance(self, num_computed: int, drawn: ReadOnly[int]) -> None:
        """Note that `num_computed` more tokens are in the cache, and append those `drawn`, if any.

        All tokens so far are computed before one is drawn. Of several drawn, all but the last may be computed already
        (accepted drafts); `num_computed` counts them, too.
        """
        if self.state is not State.PREFILL and self.state is not State.DECODE:
            raise IllegalMove(f"a sequence that is {self.state.value} cannot advance")
        num_computed += self.num_computed
        if num_computed > len(self.tokens) + max(0, len(drawn) - 1):
            raise IllegalMove("more tokens computed than the sequence has")
        if drawn and num_computed < len(self.tokens):
            raise IllegalMove("a token cannot be drawn before all tokens are computed")
        self.num_computed = num_computed
        self.tokens.extend(drawn)
        if drawn and self.matcher is not None:
            self.matcher.advance(drawn)
        if drawn and not self.is_decoding:
            self._move(Move.CAUGHT_UP)

    def truncate(self, num_tokens: int) -> None:
        """Take generated tokens back, as if never drawn. The caller truncates the block table likewise.

        Raises IllegalMove for a cut into the prompt or into what is shared already.
        """
        fixed = max(self.num_prompt, self.num_shared * self.chain.block_size)
        if self.state is State.FINISHED or not fixed <= num_tokens <= len(self.tokens):
            raise IllegalMove(f"a sequence that is {self.state.value} cannot be cut to {num_tokens} tokens")
        if self.matcher is not None:
            self.matcher.rollback(len(self.tokens) - num_tokens)
        del self.tokens[num_tokens:]
        self.drafter = None  # it follows tokens that only ever grow
        self.chain.truncate(num_tokens)
        self.num_computed = min(self.num_computed, num_tokens - 1)

    def preempt(self) -> None:
        """Wait again, with all tokens kept; the caller has released the blocks."""
        self._move(Move.PREEMPT)
        self.num_computed = 0
        self.num_shared = 0
        if self.pooler is not None:
            self.pooler.reset()
        self.chain.extend(self.tokens, len(self.tokens))

    def finish(self) -> None:
        """End; the caller has released the blocks."""
        self._move(Move.FINISH)
