"""What `/v1/messages` answers, whole and in events: shapes only, after Anthropic's API reference."""

from typing import Final, Literal

import msgspec

from headway.core.errors import HeadwayError
from headway.core.messages import Usage
from headway.wire import sse

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

_ERROR_TYPES: Final[dict[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "request_too_large",
    503: "overloaded_error",
}


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """Text of an answer."""

    text: str


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True, tag="tool_use"):
    """A call of a tool. `input`: its arguments; empty in a stream, where they follow."""

    id: str
    name: str
    input: dict[str, object]


Block = TextBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens. The API counts those read from the cache apart from `input_tokens`."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An answer; as the beginning of a stream without content."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageStart(msgspec.Struct, frozen=True, tag="message_start"):
    """Begins a stream."""

    message: Message


class BlockStart(msgspec.Struct, frozen=True, tag="content_block_start"):
    """Begins a content block."""

    index: int
    content_block: Block


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """Text that a block gained."""

    text: str


class InputJsonDelta(msgspec.Struct, frozen=True, tag="input_json_delta"):
    """Text that a call's arguments gained."""

    partial_json: str


class BlockDelta(msgspec.Struct, frozen=True, tag="content_block_delta"):
    """Adds to a content block."""

    index: int
    delta: TextDelta | InputJsonDelta


class BlockStop(msgspec.Struct, frozen=True, tag="content_block_stop"):
    """Ends a content block."""

    index: int


class MessageEnd(msgspec.Struct, frozen=True):
    """Why an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, frozen=True, tag="message_delta"):
    """Tells the end. `usage`: of the whole answer."""

    delta: MessageEnd
    usage: MessageUsage


class MessageStop(msgspec.Struct, frozen=True, tag="message_stop"):
    """Ends a stream."""


StreamEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


class MessageErrorFields(msgspec.Struct, frozen=True):
    """What went wrong."""

    type: str
    message: str


class MessageError(msgspec.Struct, frozen=True, tag="error"):
    """The body of an error response, and the last event of a stream that an error cut off."""

    error: MessageErrorFields


class TokenCount(msgspec.Struct, frozen=True):
    """The answer of `/v1/messages/count_tokens`."""

    input_tokens: int


MESSAGES_PATH: Final = "/v1/messages"


def message_error(error: HeadwayError) -> MessageError:
    """Describe an error in Anthropic's shape."""
    return MessageError(MessageErrorFields(_ERROR_TYPES.get(error.status, "api_error"), error.message))


def message_error_event(error: HeadwayError) -> bytes:
    """Encode an error that ends a stream."""
    return sse.event(message_error(error), "error")


def message_usage(usage: Usage) -> MessageUsage:
    """Describe a request's usage."""
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        cache_read_input_tokens=usage.cached_tokens,
    )
