"""What a chat completion answers, whole and in chunks: shapes only, after OpenAI's API reference."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headway.wire.usage import UsageFields

FinishReason = Literal["stop", "length"]


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


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


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


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to an answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: UnsetType | None = UNSET


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
