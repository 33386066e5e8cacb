"""A chat completion request: bytes in, a checked `ChatCall` out. Field by field after OpenAI's API reference.

It knows no chat template; what concerns tools is in `tools`. Text parts of one message are joined without anything
between them: the exact text sent.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import check_range, convert, decode_object, kind_of, select, shown
from headway.wire.options import MAX_LOGPROBS, GenerationOptions, OptionFields, check_options
from headway.wire.schema_hints import MESSAGES, at_least, between
from headway.wire.tools import (
    ToolCall,
    ToolChoice,
    ToolDefinition,
    chat_tool,
    check_call_bounds,
    check_tools_bytes,
    parse_tool_calls,
    parse_tool_choice,
    parse_tools,
)

Role = Literal["system", "user", "assistant", "tool"]

MAX_MESSAGES: Final = 8192
"""A conversation of two messages a turn reaches any context we serve long before this."""
MAX_PARTS: Final = 8192
"""Text parts over all messages; each is checked on the event loop, in about 10 µs."""

MAX_TEMPLATE_KWARGS: Final = 16
"""Templates read one or two."""

_TEMPLATE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TEMPLATE_OWN_NAMES: Final = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "range", "self"}
)
"""What the conversation itself decides, and a word that Python's calls keep."""

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",  # OpenAI's newer word for the same thing
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
IGNORED: Final = frozenset(
    {
        "metadata",
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
    "service_tier": ("auto", "default"),
    "store": (False,),
    "verbosity": ("medium",),
}
"""Fields we do not support, with the values that ask for what happens anyway."""

_MESSAGE_IGNORED: Final = frozenset({"annotations"})
"""Citations of an earlier answer, which clients send back with it; no template reads them."""
_PART_IGNORED: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Hints for prefix caches that need them; ours finds prefixes by itself."""


class ChatFields(OptionFields, kw_only=True):
    """The supported fields of a chat completion, typed."""

    messages: Annotated[list[dict[str, msgspec.Raw]], MESSAGES]
    max_completion_tokens: Annotated[int | None, at_least(1)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, between(0, MAX_LOGPROBS)] = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    tool_choice: str | dict[str, msgspec.Raw] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, as a chat template takes it.

    content        None only beside `tool_calls`
    name           of who speaks; in a tool's message the function that was called
    tool_calls     what the assistant called
    tool_call_id   which of these calls a tool's message answers
    """

    role: Role
    content: str | None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request.

    model                 None: the caller named none
    tools                 what may be called; empty = tools are not in play, and `tool_choice` is "none"
    parallel_tool_calls   whether one answer may hold several calls
    template_kwargs       further names for the chat template (`enable_thinking`)
    """

    model: str | None
    messages: tuple[ChatMessage, ...]
    options: GenerationOptions
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice("none")
    parallel_tool_calls: bool = True
    template_kwargs: dict[str, bool | int | float | str | None] = {}


class _MessageFields(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[dict[str, msgspec.Raw]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, msgspec.Raw]] | None = None
    tool_call_id: str | None = None


class _TextPart(msgspec.Struct):
    type: str
    text: str | None = None


def parse_chat(body: bytes) -> ChatCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=ChatFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("messages", "tools"),
    )
    check_tools_bytes(chosen.get("tools"))
    fields = convert(chosen, ChatFields)
    tools = parse_tools(fields.tools or [], chat_tool)
    max_tokens_param = "max_tokens"
    if fields.max_completion_tokens is not None:  # the newer name wins when both are given
        fields.max_tokens, max_tokens_param = fields.max_completion_tokens, "max_completion_tokens"
    return ChatCall(
        model=fields.model,
        messages=parse_messages(fields.messages),
        options=check_options(fields, max_tokens_param=max_tokens_param, num_logprobs=_num_logprobs(fields)),
        tools=tools,
        tool_choice=parse_tool_choice(fields.tool_choice, tools),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        template_kwargs=check_template_kwargs(fields.chat_template_kwargs or {}),
    )


def check_template_kwargs(
    values: dict[str, bool | int | float | str | None],
) -> dict[str, bool | int | float | str | None]:
    """Return the further names for a chat template that a request gives; raises InvalidRequest."""
    param = "chat_template_kwargs"
    if len(values) > MAX_TEMPLATE_KWARGS:
        raise InvalidRequest(
            f"`{param}` may hold at most {MAX_TEMPLATE_KWARGS} names; it holds {len(values)}.", param=param
        )
    for name in values:
        if _TEMPLATE_NAME.fullmatch(name) is None or name in _TEMPLATE_OWN_NAMES:
            raise InvalidRequest(
                f"`{param}` may not name {shown(name)}; it takes names that the chat template itself reads.",
                param=param,
            )
    return values


def _num_logprobs(fields: ChatFields) -> int | None:
    if fields.top_logprobs is not None:
        check_range("top_logprobs", fields.top_logprobs, 0, MAX_LOGPROBS)
    if fields.logprobs:
        return fields.top_logprobs or 0
    if fields.top_logprobs:
        raise InvalidRequest("`top_logprobs` needs `logprobs`: true.", param="top_logprobs")
    return None


def parse_messages(items: list[dict[str, msgspec.Raw]]) -> tuple[ChatMessage, ...]:
    """Parse and check a conversation; raises InvalidRequest that names the message."""
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
    messages: list[ChatMessage] = []
    names: dict[str, str] = {}  # of the functions called so far, by the calls' ids
    for index, fields in enumerate(parsed):
        message = _message(fields, names, f"messages[{index}].")
        names |= {call.id: call.name for call in message.tool_calls}
        messages.append(message)
    check_call_bounds([call for message in messages for call in message.tool_calls])
    return tuple(messages)


def _message_fields(item: dict[str, msgspec.Raw], where: str) -> _MessageFields:
    chosen = select(
        item,
        supported=_MessageFields.__struct_fields__,
        ignored=_MESSAGE_IGNORED,
        neutral={},
        long=("content", "tool_calls"),
        where=where,
    )
    return convert(chosen, _MessageFields, where=where)


def _message(fields: _MessageFields, names: Mapping[str, str], where: str) -> ChatMessage:
    role = _role(fields.role, where)
    tool_calls: tuple[ToolCall, ...] = ()
    if fields.tool_calls:
        if role != "assistant":
            raise InvalidRequest(
                f"`{where}tool_calls` belongs to messages of the role `assistant`.",
                param=where + "tool_calls",
            )
        tool_calls = parse_tool_calls(fields.tool_calls, where + "tool_calls")
    if fields.content is None and not tool_calls:
        raise InvalidRequest(
            f"`{where}content` is missing; send a string or a list of text parts.", param=where + "content"
        )
    called_name: str | None = None
    if role == "tool":
        called_name = _called_name(fields, names, where)
    elif fields.tool_call_id is not None:
        raise InvalidRequest(
            f"`{where}tool_call_id` belongs to messages of the role `tool`.", param=where + "tool_call_id"
        )
    return ChatMessage(
        role=role,
        content=None if fields.content is None else _content(fields.content, where + "content"),
        name=fields.name or called_name,
        tool_calls=tool_calls,
        tool_call_id=fields.tool_call_id,
    )


def _called_name(fields: _MessageFields, names: Mapping[str, str], where: str) -> str:
    if fields.tool_call_id is None:
        raise InvalidRequest(
            f"`{where}tool_call_id` is missing; name the call that it answers.", param=where + "tool_call_id"
        )
    if fields.tool_call_id not in names:
        raise InvalidRequest(
            f"`{where}tool_call_id` is {shown(fields.tool_call_id)}, which no earlier message's `tool_calls` has.",
            param=where + "tool_call_id",
        )
    return names[fields.tool_call_id]


def _role(role: str, where: str) -> Role:
    if role in _ROLES:
        return _ROLES[role]
    if role == "function":
        raise InvalidRequest(
            "Messages of the role `function` are not supported; use `tool`.", param=where + "role"
        )
    raise InvalidRequest(
        f"`{where}role` must be system, developer, user, assistant or tool; it is {shown(role)}.",
        param=where + "role",
    )


def _content(content: str | list[dict[str, msgspec.Raw]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part, f"{where}[{index}].") for index, part in enumerate(content))


def _part(part: dict[str, msgspec.Raw], where: str) -> str:
    kind = kind_of(part)
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
