"""A chat completion request: bytes in, a checked `ChatCall` out. Field by field after OpenAI's API reference.

It knows no chat template. Text parts of one message are joined without anything between them: the exact text sent.
"""

from typing import Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import check_range, convert, decode_object, peek, select, shown
from headway.wire.options import MAX_LOGPROBS, GenerationOptions, OptionFields, check_options

Role = Literal["system", "user", "assistant"]

MAX_MESSAGES: Final = 8192
"""A conversation of two messages a turn reaches any context we serve long before this."""
MAX_PARTS: Final = 8192
"""Text parts over all messages; each is checked on the event loop, in about 10 µs."""

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",  # OpenAI's newer word for the same thing
    "user": "user",
    "assistant": "assistant",
}
_IGNORED: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",  # a hint for speed; never changes the text
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
}
"""Fields we do not support, with the values that ask for what happens anyway."""

_MESSAGE_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {"tool_calls": ([],)}
_MESSAGE_IGNORED: Final = frozenset({"annotations"})
"""Citations of an earlier answer, which clients send back with it; no template reads them."""
_PART_IGNORED: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Hints for prefix caches that need them; ours finds prefixes by itself."""


class ChatFields(OptionFields, kw_only=True):
    """The supported fields of a chat completion, typed."""

    messages: list[dict[str, msgspec.Raw]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, as a chat template takes it."""

    role: Role
    content: str
    name: str | None = None


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. `model` None: the caller named none."""

    model: str | None
    messages: tuple[ChatMessage, ...]
    options: GenerationOptions


class _MessageFields(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[dict[str, msgspec.Raw]] | None = None
    name: str | None = None
    tool_call_id: str | None = None


class _TextPart(msgspec.Struct):
    type: str
    text: str | None = None


def parse_chat(body: bytes) -> ChatCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=ChatFields.__struct_fields__,
        ignored=_IGNORED,
        neutral=_NEUTRAL,
        long=("messages",),
    )
    fields = convert(chosen, ChatFields)
    max_tokens_param = "max_tokens"
    if fields.max_completion_tokens is not None:  # the newer name wins when both are given
        fields.max_tokens, max_tokens_param = fields.max_completion_tokens, "max_completion_tokens"
    return ChatCall(
        model=fields.model,
        messages=_messages(fields.messages),
        options=check_options(fields, max_tokens_param=max_tokens_param, num_logprobs=_num_logprobs(fields)),
    )


def _num_logprobs(fields: ChatFields) -> int | None:
    if fields.top_logprobs is not None:
        check_range("top_logprobs", fields.top_logprobs, 0, MAX_LOGPROBS)
    if fields.logprobs:
        return fields.top_logprobs or 0
    if fields.top_logprobs:
        raise InvalidRequest("`top_logprobs` needs `logprobs`: true.", param="top_logprobs")
    return None


def _messages(items: list[dict[str, msgspec.Raw]]) -> tuple[ChatMessage, ...]:
    if not items:
        raise InvalidRequest("`messages` is empty; send at least one message.", param="messages")
    if len(items) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages` may hold at most {MAX_MESSAGES} messages; it holds {len(items)}.", param="messages"
        )
    parsed = [_message_fields(item, f"messages[{index}].") for index, item in enumerate(items)]
    num_parts = sum(len(fields.content) for fields in parsed if isinstance(fields.content, list))
    if num_parts > MAX_PARTS:
        raise InvalidRequest(
            f"`messages` may hold at most {MAX_PARTS} content parts; it holds {num_parts}.", param="messages"
        )
    return tuple(_message(fields, f"messages[{index}].") for index, fields in enumerate(parsed))


def _message_fields(item: dict[str, msgspec.Raw], where: str) -> _MessageFields:
    chosen = select(
        item,
        supported=_MessageFields.__struct_fields__,
        ignored=_MESSAGE_IGNORED,
        neutral=_MESSAGE_NEUTRAL,
        long=("content",),
        where=where,
    )
    return convert(chosen, _MessageFields, where=where)


def _message(fields: _MessageFields, where: str) -> ChatMessage:
    role = _role(fields.role, where)
    if fields.tool_call_id is not None:
        raise InvalidRequest(
            f"The field {shown(where + 'tool_call_id')} belongs to tool messages, which are not supported.",
            param=where + "tool_call_id",
        )
    if fields.content is None:
        raise InvalidRequest(
            f"`{where}content` is missing; send a string or a list of text parts.", param=where + "content"
        )
    return ChatMessage(role=role, content=_content(fields.content, where + "content"), name=fields.name)


def _role(role: str, where: str) -> Role:
    if role in _ROLES:
        return _ROLES[role]
    if role in ("tool", "function"):
        raise InvalidRequest(
            f"Messages of the role `{role}` are not supported, as tools are not.", param=where + "role"
        )
    raise InvalidRequest(
        f"`{where}role` must be system, developer, user or assistant; it is {shown(role)}.",
        param=where + "role",
    )


def _content(content: str | list[dict[str, msgspec.Raw]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part, f"{where}[{index}].") for index, part in enumerate(content))


def _part(part: dict[str, msgspec.Raw], where: str) -> str:
    kind = peek(part["type"]) if "type" in part else None
    if kind != "text":
        raise InvalidRequest(
            f"Content parts of the type {shown(kind)} are not supported; send text parts only.",
            param=where + "type",
        )
    chosen = select(
        part, supported=("type", "text"), ignored=_PART_IGNORED, neutral={}, long=("text",), where=where
    )
    text = convert(chosen, _TextPart, where=where).text
    if text is None:
        raise InvalidRequest(f"`{where}text` is missing.", param=where + "text")
    return text
