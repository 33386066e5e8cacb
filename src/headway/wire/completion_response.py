"""What a text completion answers, whole and in chunks: one shape for both, after OpenAI's API reference."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headway.wire.chat_response import FinishReason
from headway.wire.usage import UsageFields


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one item per token. `text_offset`: where the token begins in the choice's text, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice, or its part of a chunk (`finish_reason` null until its last).

    token_ids   what the text was made of, where it was asked for; tokens come with the text they complete
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole response, or one event of a stream (`usage` as in `ChatChunk`)."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageFields | UnsetType | None = UNSET
    system_fingerprint: str
