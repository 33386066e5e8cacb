"""What streams out of a choice: text, tool calls, the end. Frozen values that every endpoint writes in its own shape.

They are msgspec's Structs as one is made for every token: a frozen dataclass takes several times as long.
"""

import msgspec

from headway.core.messages import TokenLogprobs
from headway.wire.chat_response import FinishReason


class ScoredToken(msgspec.Struct, frozen=True):
    """A token with log-probabilities. `start`: where its text begins in all that the choice wrote, in characters."""

    start: int
    logprobs: TokenLogprobs


class Piece(msgspec.Struct, frozen=True):
    """Text that one choice gained: never empty. `token_ids`: its tokens since the last event, where asked for."""

    choice: int
    text: str
    scored: tuple[ScoredToken, ...] = ()
    token_ids: tuple[int, ...] = ()


class ToolCallStart(msgspec.Struct, frozen=True):
    """A choice calls a tool. `index`: the call's number within the choice, from 0, in the order of their starts."""

    choice: int
    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True):
    """Text that a call's arguments gained, never empty. A call's come one after the other, before the next call starts."""

    choice: int
    index: int
    text: str


class ChoiceEnd(msgspec.Struct, frozen=True):
    """A choice ended.

    scored      tokens without text of their own that no piece carried
    stop        the stop string that ended it, if one did
    token_ids   of the tokens that no piece carried, where they are asked for
    """

    choice: int
    reason: FinishReason
    scored: tuple[ScoredToken, ...] = ()
    stop: str | None = None
    token_ids: tuple[int, ...] = ()


TextEvent = Piece | ToolCallStart | ToolCallArguments | ChoiceEnd
"""Text and calls come in the order in which the model wrote them; calls only if the request brought tools."""
