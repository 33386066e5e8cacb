"""Anthropic's Messages API: a request's bytes translated into the `ChatCall` that a chat completion would have been.

Field by field after the API's reference (messages "create"). Text, tool calls and tool results carry over; what has no
counterpart in a model of ours (images, documents, thinking on demand, tools that the provider runs) is refused by name.
Thinking of earlier turns is left out, as the API itself does.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import MAX_MESSAGES, MAX_PARTS, ChatCall, ChatMessage
from headway.wire.fields import check_range, convert, decode_object, peek, select, shown
from headway.wire.options import GenerationOptions, OptionFields, check_options
from headway.wire.schema_hints import BLOCK_MESSAGES, at_least, between
from headway.wire.structured import JsonSchemaFormat, ResponseFormat
from headway.wire.tools import (
    ToolCall,
    ToolChoice,
    ToolDefinition,
    check_call_bounds,
    check_names_differ,
    check_tool_choice,
    check_tools_bytes,
    check_tools_size,
    define_tool,
)

IGNORED: Final = frozenset(
    {
        "cache_control",
        "diagnostics",
        "inference_geo",
        "metadata",
        "service_tier",
        "user_profile_id",
        "workspace_id",
    }
)
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "container": (),
    "context_management": ({}, {"edits": []}),
    "mcp_servers": ([],),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"}, {"type": "adaptive"}),  # adaptive: the model may think, or not
}
_BLOCK_IGNORED: Final = frozenset({"cache_control", "citations"})
_NAMES: Final = (("response_format", "output_config.format"), ("stop", "stop_sequences"))
"""What chat's fields are called here."""
_CHOICES: Final[dict[str, ToolChoice]] = {
    "auto": ToolChoice("auto"),
    "any": ToolChoice("required"),
    "none": ToolChoice("none"),
}


class OutputFormat(msgspec.Struct, forbid_unknown_fields=True):
    """`output_config.format`."""

    type: Literal["json_schema"]
    schema: msgspec.Raw


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    """`output_config`: the shape of the answer. `effort` has no counterpart here; its default asks for nothing."""

    format: OutputFormat | None = None
    effort: Literal["high"] | None = None


class MessagesFields(msgspec.Struct, kw_only=True):
    """The supported fields of `/v1/messages`, typed."""

    messages: Annotated[list[dict[str, msgspec.Raw]], BLOCK_MESSAGES]
    max_tokens: Annotated[int, at_least(1)]
    model: str | None = None
    system: str | list[dict[str, msgspec.Raw]] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Annotated[float | None, between(0, 1)] = None
    top_k: Annotated[int | None, at_least(0)] = None
    top_p: Annotated[float | None, between(0, 1)] = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    tool_choice: dict[str, msgspec.Raw] | None = None
    output_config: OutputConfig | None = None


class CountFields(msgspec.Struct, kw_only=True):
    """The supported fields of `/v1/messages/count_tokens`, typed."""

    messages: Annotated[list[dict[str, msgspec.Raw]], BLOCK_MESSAGES]
    model: str | None = None
    system: str | list[dict[str, msgspec.Raw]] | None = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    tool_choice: dict[str, msgspec.Raw] | None = None


class _MessageFields(msgspec.Struct):
    role: str
    content: str | list[dict[str, msgspec.Raw]]


class _TextBlock(msgspec.Struct):
    text: str


class _ToolUseBlock(msgspec.Struct):
    id: str
    name: str
    input: dict[str, msgspec.Raw]


class _ToolResultBlock(msgspec.Struct):
    tool_use_id: str
    content: str | list[dict[str, msgspec.Raw]] | None = None
    is_error: bool | None = None


class _ToolFields(msgspec.Struct):
    name: str
    input_schema: dict[str, msgspec.Raw]
    description: str | None = None
    strict: bool | None = None


class _ChoiceFields(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def parse_message_call(body: bytes) -> ChatCall:
    """Parse and check the body of `/v1/messages`; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=MessagesFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("messages", "system", "tools", "output_config"),
    )
    check_tools_bytes(chosen.get("tools"))
    fields = convert(chosen, MessagesFields)
    if fields.temperature is not None:
        check_range("temperature", fields.temperature, 0, 1)
    options = OptionFields(
        max_tokens=fields.max_tokens,
        temperature=fields.temperature,
        top_k=fields.top_k,
        top_p=fields.top_p,
        stop=fields.stop_sequences,
        stream=fields.stream,
        response_format=_format(fields.output_config),
    )
    call = _call(fields, options)
    if call.messages[-1].role == "assistant":  # the API's answer would go on from it
        where = f"messages[{len(fields.messages) - 1}].role"
        raise InvalidRequest(
            f"The beginning of an answer cannot be given: `{where}` is assistant; end with a message of the user.",
            param=where,
        )
    return call


def parse_count_call(body: bytes) -> ChatCall:
    """Parse and check the body of `/v1/messages/count_tokens`; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=CountFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("messages", "system", "tools"),
    )
    check_tools_bytes(chosen.get("tools"))
    return _call(convert(chosen, CountFields), OptionFields())


def _call(fields: MessagesFields | CountFields, options: OptionFields) -> ChatCall:
    tools = _tools(fields.tools or [])
    choice, parallel = _tool_choice(fields.tool_choice)
    return ChatCall(
        model=fields.model,
        messages=(*_system(fields.system), *_messages(fields.messages)),
        options=_checked(options),
        tools=tools,
        tool_choice=check_tool_choice(choice, tools),
        parallel_tool_calls=parallel,
    )


def _checked(options: OptionFields) -> GenerationOptions:
    """Check the options, naming fields as this API does."""
    try:
        return check_options(options, max_tokens_param="max_tokens", num_logprobs=None)
    except InvalidRequest as error:
        message, param = error.message, error.param
        for chat_name, name in _NAMES:
            if param is not None and param.startswith(chat_name):
                raise InvalidRequest(message.replace(f"`{param}`", f"`{name}`"), param=name) from None
        raise


def _format(config: OutputConfig | None) -> ResponseFormat | None:
    if config is None or config.format is None:
        return None
    return ResponseFormat("json_schema", JsonSchemaFormat(schema=config.format.schema))


def _system(system: str | list[dict[str, msgspec.Raw]] | None) -> Iterator[ChatMessage]:
    if system:
        yield ChatMessage(role="system", content=_text(system, "system"))


def _messages(items: list[dict[str, msgspec.Raw]]) -> list[ChatMessage]:
    if not items:
        raise InvalidRequest("`messages` is empty; send at least one message.", param="messages")
    if len(items) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages` may hold at most {MAX_MESSAGES} messages; it holds {len(items)}.", param="messages"
        )
    messages: list[ChatMessage] = []
    names: dict[str, str] = {}  # of the tools called so far, by the calls' ids
    num_blocks = 0
    for index, item in enumerate(items):
        where = f"messages[{index}]."
        chosen = select(
            item, supported=("role", "content"), ignored=(), neutral={}, long=("content",), where=where
        )
        fields = convert(chosen, _MessageFields, where=where)
        if isinstance(fields.content, list):
            num_blocks += len(fields.content)
            if num_blocks > MAX_PARTS:
                raise InvalidRequest(
                    f"`messages` may hold at most {MAX_PARTS} content blocks.", param="messages"
                )
        match fields.role:
            case "user":
                messages += _user(fields.content, names, where + "content")
            case "assistant":
                message = _assistant(fields.content, where + "content")
                names |= {call.id: call.name for call in message.tool_calls}
                messages.append(message)
            case "system":
                messages.append(ChatMessage(role="system", content=_text(fields.content, where + "content")))
            case _:
                raise InvalidRequest(
                    f"`{where}role` must be user or assistant; it is {shown(fields.role)}.",
                    param=where + "role",
                )
    check_call_bounds([call for message in messages for call in message.tool_calls])
    return messages


def _user(
    content: str | list[dict[str, msgspec.Raw]], names: dict[str, str], where: str
) -> Iterator[ChatMessage]:
    """Results of tools become messages of their own; the text around them one of the user's."""
    if isinstance(content, str):
        yield ChatMessage(role="user", content=content)
        return
    parts: list[str] = []
    for index, block in enumerate(content):
        at = f"{where}[{index}]."
        if _kind(block) == "tool_result":
            yield _tool_result(block, names, at)
        else:
            parts.append(_text_block(block, at))
    if parts or not content:
        yield ChatMessage(role="user", content="".join(parts))


def _assistant(content: str | list[dict[str, msgspec.Raw]], where: str) -> ChatMessage:
    if isinstance(content, str):
        return ChatMessage(role="assistant", content=content)
    parts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(content):
        at = f"{where}[{index}]."
        match _kind(block):
            case "thinking" | "redacted_thinking":
                continue
            case "tool_use":
                calls.append(_tool_use(block, at))
            case _:
                parts.append(_text_block(block, at))
    return ChatMessage(
        role="assistant",
        content="".join(parts) if parts or not calls else None,
        tool_calls=tuple(calls),
    )


def _tool_use(block: dict[str, msgspec.Raw], where: str) -> ToolCall:
    chosen = select(
        block,
        supported=("type", "id", "name", "input"),
        ignored=_BLOCK_IGNORED,
        neutral={},
        long=("input",),
        where=where,
    )
    fields = convert(chosen, _ToolUseBlock, where=where)
    return ToolCall(id=fields.id, name=fields.name, arguments=bytes(chosen["input"]).decode())


def _tool_result(block: dict[str, msgspec.Raw], names: dict[str, str], where: str) -> ChatMessage:
    chosen = select(
        block,
        supported=("type", "tool_use_id", "content", "is_error"),
        ignored=_BLOCK_IGNORED,
        neutral={},
        long=("content",),
        where=where,
    )
    fields = convert(chosen, _ToolResultBlock, where=where)
    if fields.tool_use_id not in names:
        raise InvalidRequest(
            f"`{where}tool_use_id` is {shown(fields.tool_use_id)}, which no earlier `tool_use` block has.",
            param=where + "tool_use_id",
        )
    return ChatMessage(
        role="tool",
        content=_text(fields.content or "", where + "content"),
        name=names[fields.tool_use_id],
        tool_call_id=fields.tool_use_id,
    )


def _text(content: str | list[dict[str, msgspec.Raw]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text_block(block, f"{where}[{index}].") for index, block in enumerate(content))


def _text_block(block: dict[str, msgspec.Raw], where: str) -> str:
    kind = _kind(block)
    if kind != "text":
        raise InvalidRequest(
            f"Content blocks of the type {shown(kind)} are not supported here.", param=where + "type"
        )
    chosen = select(
        block, supported=("type", "text"), ignored=_BLOCK_IGNORED, neutral={}, long=("text",), where=where
    )
    return convert(chosen, _TextBlock, where=where).text


def _kind(block: dict[str, msgspec.Raw]) -> object:
    return peek(block["type"]) if "type" in block else None


def _tools(items: list[dict[str, msgspec.Raw]]) -> tuple[ToolDefinition, ...]:
    check_tools_size(items)
    tools = tuple(_tool(item, f"tools[{index}].") for index, item in enumerate(items))
    check_names_differ(tools)
    return tools


def _tool(item: dict[str, msgspec.Raw], where: str) -> ToolDefinition:
    kind = _kind(item)
    if kind not in (None, "custom"):
        raise InvalidRequest(
            f"Tools of the type {shown(kind)} run at the provider and are not supported; `{where}type` must be "
            "`custom`.",
            param=where + "type",
        )
    chosen = select(
        item,
        supported=("type", "name", "description", "input_schema", "strict"),
        ignored=frozenset({"cache_control", "input_examples", "eager_input_streaming"}),
        neutral={"defer_loading": (False,), "allowed_callers": (["direct"],)},
        long=("description", "input_schema"),
        where=where,
    )
    fields = convert(chosen, _ToolFields, where=where)
    return define_tool(
        fields.name,
        fields.description,
        chosen["input_schema"],
        strict=bool(fields.strict),
        where=where,
        schema_name="input_schema",
    )


def _tool_choice(value: dict[str, msgspec.Raw] | None) -> tuple[ToolChoice, bool]:
    """Return the choice, and whether an answer may hold several calls."""
    if value is None:
        return ToolChoice("auto"), True
    where = "tool_choice."
    chosen = select(
        value, supported=_ChoiceFields.__struct_fields__, ignored=(), neutral={}, long=(), where=where
    )
    fields = convert(chosen, _ChoiceFields, where=where)
    if fields.type == "tool":
        if fields.name is None:
            raise InvalidRequest("`tool_choice.name` is missing.", param=where + "name")
        choice = ToolChoice("named", fields.name)
    elif fields.type in _CHOICES:
        choice = _CHOICES[fields.type]
    else:
        raise InvalidRequest(
            f"`tool_choice.type` must be auto, any, tool or none; it is {shown(fields.type)}.",
            param=where + "type",
        )
    return choice, not fields.disable_parallel_tool_use
