"""`/tokenize` and `/detokenize`: what a model makes of a text, and back. The shapes are those vLLM introduced."""

from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatMessage, parse_messages
from headway.wire.fields import convert, decode_object, select
from headway.wire.schema_hints import MESSAGES, described

MAX_TOKEN_IDS: Final = 1_000_000
"""More than any context served here; what one answer may cost the tokenising thread is bounded by it."""


class TokenizeFields(msgspec.Struct, kw_only=True):
    """The fields of `/tokenize`: either `prompt` or `messages`.

    add_special_tokens      of a prompt: begin (and end) as the model's files ask for
    return_token_strs       give each token's text, too
    """

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[dict[str, msgspec.Raw]] | None, MESSAGES] = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: `text` is None for messages."""

    model: str | None
    text: str | None
    messages: tuple[ChatMessage, ...]
    add_special_tokens: bool
    return_token_strs: bool


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `token_strs`: bytes that are no whole characters become U+FFFD."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeFields(msgspec.Struct, kw_only=True):
    """The fields of `/detokenize`."""

    tokens: Annotated[list[int], described(maxItems=MAX_TOKEN_IDS)]
    model: str | None = None


class DetokenizeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request."""

    model: str | None
    tokens: tuple[int, ...]


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: special tokens by their names."""

    prompt: str


def parse_tokenize(body: bytes) -> TokenizeCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=TokenizeFields.__struct_fields__,
        ignored=(),
        neutral={"add_generation_prompt": (True,)},
        long=("prompt", "messages"),
    )
    fields = convert(chosen, TokenizeFields)
    if (fields.prompt is None) == (fields.messages is None):
        raise InvalidRequest("Send either `prompt` or `messages`.", param="prompt")
    return TokenizeCall(
        model=fields.model,
        text=fields.prompt,
        messages=() if fields.messages is None else parse_messages(fields.messages),
        add_special_tokens=fields.add_special_tokens is not False,
        return_token_strs=bool(fields.return_token_strs),
    )


def parse_detokenize(body: bytes) -> DetokenizeCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=DetokenizeFields.__struct_fields__,
        ignored=(),
        neutral={},
        long=("tokens",),
    )
    fields = convert(chosen, DetokenizeFields)
    if len(fields.tokens) > MAX_TOKEN_IDS:
        raise InvalidRequest(
            f"`tokens` may hold at most {MAX_TOKEN_IDS} ids; it holds {len(fields.tokens)}.", param="tokens"
        )
    return DetokenizeCall(model=fields.model, tokens=tuple(fields.tokens))
