"""What chat and text completions share when they answer: the head of every response, collecting, tokens as text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headway.core.errors import HeadwayError
from headway.core.messages import Usage
from headway.gateway.text_events import (
    ChoiceEnd,
    Piece,
    ScoredToken,
    TextEvent,
    ToolCallArguments,
    ToolCallStart,
)
from headway.wire.chat_response import FinishReason

TokenBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What every response and chunk repeats.

    created_s           Unix seconds, a label
    num_prompt_tokens   of all prompts
    """

    id: str
    created_s: int
    model: str
    system_fingerprint: str
    include_usage: bool
    num_prompt_tokens: int


@dataclass(slots=True)
class CollectedCall:
    """One tool call of a response that is sent whole."""

    id: str
    name: str
    parts: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The whole text of the arguments."""
        return "".join(self.parts)


@dataclass(slots=True)
class CollectedChoice:
    """One choice of a response that is sent whole."""

    parts: list[str] = field(default_factory=list)
    calls: list[CollectedCall] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    reason: FinishReason = "stop"
    stop: str | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.parts)


class Answer(Protocol):
    """Writes one call's response in an endpoint's shape, whole or as events."""

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode what a step brought as server-sent events; may be empty."""
        ...

    def stream_end(self, usage: Usage) -> bytes:
        """Encode what follows the last choice."""
        ...

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode what ends a stream that an error cut off."""
        ...

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> msgspec.Struct:
        """Build the response's body."""
        ...


def collect(choices: Sequence[CollectedChoice], events: Iterable[TextEvent]) -> None:
    """Add what a step brought."""
    for event in events:
        choice = choices[event.choice]
        match event:
            case Piece():
                choice.parts.append(event.text)
                choice.scored += event.scored
                choice.token_ids += event.token_ids
            case ToolCallStart():
                choice.calls.append(CollectedCall(event.id, event.name))
            case ToolCallArguments():
                choice.calls[event.index].parts.append(event.text)
            case ChoiceEnd():
                choice.reason = event.reason
                choice.stop = event.stop
                choice.scored += event.scored
                choice.token_ids += event.token_ids


def token_text(token: bytes) -> str:
    r"""Return a token as text; one that is part of a character as OpenAI writes it: `bytes:\xe2\x82`."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
