"""Anthropic's Messages API: a request's bytes translated into the `ChatCall` that a chat completion would have been.

Field by field after the API's reference (messages "create"). Text, tool calls and tool results carry over; what has no
counterpart in a model of ours (images, documents, thinking on demand, tools that the provider runs) is refused by name.
"""

from typing import Annotated, Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatCall
from headway.wire.fields import check_range, convert, decode_object, kind_of, select, shown
from headway.wire.messages_content import parse_block_messages, parse_system
from headway.wire.options import GenerationOptions, OptionFields, check_options
from headway.wire.schema_hints import BLOCK_MESSAGES, at_least, between
from headway.wire.structured import JsonSchemaFormat, ResponseFormat
from headway.wire.tools import (
    ToolChoice,
    ToolDefinition,
    check_tool_choice,
    check_tools_bytes,
    define_tool,
    parse_tools,
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
    tools = parse_tools(fields.tools or [], _tool)
    choice, parallel = _tool_choice(fields.tool_choice)
    return ChatCall(
        model=fields.model,
        messages=(*parse_system(fields.system), *parse_block_messages(fields.messages)),
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


def _tool(item: dict[str, msgspec.Raw], where: str) -> ToolDefinition:
    kind = kind_of(item)
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
