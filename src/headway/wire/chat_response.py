"""What a chat completion answers, whole and in chunks: shapes only, after OpenAI's API reference."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headway.wire.usage import UsageFields

FinishReason = Literal["stop", "length", "tool_calls"]


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the most likely tokens. `bytes`: the token's UTF-8, or part of it."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(msgspec.Struct, frozen=True):
    """A generated token with its alternatives, best first."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of an answer's tokens."""

    content: list[ContentLogprob]
    refusal: None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """What is called. `arguments`: as the model wrote them, normally a JSON object."""

    name: str
    arguments: str


class AnswerToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a whole answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. `content`: null if there are only calls."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[AnswerToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One of the `n` answers."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request without `stream`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageFields
    service_tier: Literal["default"] = "default"
    system_fingerprint: str


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a called function. `name`: whole, in the call's first chunk only."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a call. `id` and `type`: in the call's first chunk only."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to an answer. `content`: null beside the role when the answer begins with a call."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: UnsetType | None = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream. `usage`: left out unless asked for, then null until the last chunk, which has no choices."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageFields | UnsetType | None = UNSET
    system_fingerprint: str
