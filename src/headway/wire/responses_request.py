"""OpenAI's Responses API: a request's bytes translated into the `ChatCall` that a chat completion would have been.

Field by field after OpenAI's API reference (responses "create"). Nothing is stored here, so whatever builds on a stored
response (`previous_response_id`, `conversation`, `background`, `store`: true) is refused by name, as are tools that the
provider runs.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatCall, ChatMessage
from headway.wire.fields import convert, decode_object, kind_of, select, shown
from headway.wire.options import GenerationOptions, OptionFields, check_options
from headway.wire.responses_input import parse_input
from headway.wire.schema_hints import INPUT_ITEMS, at_least, between
from headway.wire.structured import JsonSchemaFormat, ResponseFormat
from headway.wire.tools import (
    ToolChoice,
    ToolDefinition,
    check_tool_choice,
    check_tools_bytes,
    parse_tools,
    read_function,
)

IGNORED: Final = frozenset(
    {
        "include",  # more of what no answer here holds
        "max_tool_calls",  # of tools that the provider runs
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "stream_options",
        "user",
    }
)
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "background": (False,),
    "context_management": ([],),
    "reasoning": ({}, {"effort": "none"}),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}


class TextFields(msgspec.Struct):
    """`text`: the shape of the answer."""

    format: dict[str, msgspec.Raw] | None = None
    verbosity: str | None = None


class ResponsesFields(msgspec.Struct, kw_only=True):
    """The supported fields of `/v1/responses`, typed."""

    input: Annotated[msgspec.Raw, INPUT_ITEMS]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int | None, at_least(1)] = None
    stream: bool | None = None
    temperature: Annotated[float | None, between(0, 2)] = None
    top_p: Annotated[float | None, between(0, 1)] = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    tool_choice: str | dict[str, msgspec.Raw] | None = None
    parallel_tool_calls: bool | None = None
    text: TextFields | None = None


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """What a response repeats of its request, as it came."""

    instructions: str | None
    max_output_tokens: int | None
    temperature: float
    top_p: float
    tools: list[dict[str, msgspec.Raw]]
    tool_choice: str | dict[str, msgspec.Raw]
    parallel_tool_calls: bool
    format: dict[str, msgspec.Raw]


class ResponsesCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: the chat it stands for, and what its response repeats."""

    chat: ChatCall
    echo: Echo

    @property
    def model(self) -> str | None:
        """The model named, if any."""
        return self.chat.model

    @property
    def options(self) -> GenerationOptions:
        """How to generate."""
        return self.chat.options


class _ChosenTool(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    name: str


class _Format(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = msgspec.Raw()
    strict: bool | None = None


def parse_responses(body: bytes) -> ResponsesCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=ResponsesFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("input", "instructions", "tools", "text"),
    )
    check_tools_bytes(chosen.get("tools"))
    fields = convert(chosen, ResponsesFields)
    tools = parse_tools(fields.tools or [], _tool)
    options = _options(fields)
    parallel = fields.parallel_tool_calls is not False
    chat = ChatCall(
        model=fields.model,
        messages=(*_instructions(fields.instructions), *parse_input(fields.input)),
        options=options,
        tools=tools,
        tool_choice=check_tool_choice(_tool_choice(fields.tool_choice), tools),
        parallel_tool_calls=parallel,
    )
    echo = Echo(
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        tools=[_copied(tool) for tool in fields.tools or []],
        tool_choice=_copied(fields.tool_choice)
        if isinstance(fields.tool_choice, dict)
        else fields.tool_choice or "auto",
        parallel_tool_calls=parallel,
        format=_copied((fields.text.format if fields.text else None) or {"type": msgspec.Raw(b'"text"')}),
    )
    return ResponsesCall(chat=chat, echo=echo)


def _copied(fields: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Copy JSON out of the request, which would be kept as a whole with any piece of it until the response ends."""
    return {name: field.copy() for name, field in fields.items()}


def _options(fields: ResponsesFields) -> GenerationOptions:
    given = OptionFields(
        max_tokens=fields.max_output_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stream=fields.stream,
        response_format=_format(fields.text),
    )
    try:
        return check_options(given, max_tokens_param="max_output_tokens", num_logprobs=None)
    except InvalidRequest as error:
        if error.param is None or not error.param.startswith("response_format"):
            raise
        message = error.message.replace("response_format.json_schema", "text.format").replace(
            "response_format", "text.format"
        )
        raise InvalidRequest(message, param="text.format") from None


def _format(text: TextFields | None) -> ResponseFormat | None:
    if text is None:
        return None
    if text.verbosity not in (None, "medium"):
        raise InvalidRequest(
            f"The field `text.verbosity` is not supported with the value {shown(text.verbosity)}; leave it out.",
            param="text.verbosity",
        )
    if text.format is None:
        return None
    where = "text.format."
    chosen = select(
        text.format,
        supported=_Format.__struct_fields__,
        ignored=(),
        neutral={},
        long=("schema",),
        where=where,
    )
    fields = convert(chosen, _Format, where=where)
    if fields.type != "json_schema":
        return ResponseFormat(fields.type)
    return ResponseFormat(
        "json_schema", JsonSchemaFormat(fields.name, fields.description, fields.schema, fields.strict)
    )


def _instructions(text: str | None) -> Iterator[ChatMessage]:
    if text:
        yield ChatMessage(role="system", content=text)


def _tool(item: dict[str, msgspec.Raw], where: str) -> ToolDefinition:
    kind = kind_of(item)
    if kind != "function":
        raise InvalidRequest(
            f"Tools of the type {shown(kind)} are not supported; `{where}type` must be `function`.",
            param=where + "type",
        )
    return read_function(
        {name: field for name, field in item.items() if name != "type"},
        where,
        ignored=frozenset({"output_schema"}),
        neutral={"defer_loading": (False,)},
    )


def _tool_choice(value: str | dict[str, msgspec.Raw] | None) -> ToolChoice:
    match value:
        case None | "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
        case str():
            raise InvalidRequest(
                f"`tool_choice` must be none, auto, required or a function; it is {shown(value)}.",
                param="tool_choice",
            )
    chosen = convert(value, _ChosenTool, where="tool_choice.")
    if chosen.type != "function":
        raise InvalidRequest(
            f"`tool_choice.type` must be function; it is {shown(chosen.type)}.", param="tool_choice.type"
        )
    return ToolChoice("named", chosen.name)
