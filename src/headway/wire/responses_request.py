"""OpenAI's Responses API: a request's bytes translated into the `ChatCall` that a chat completion would have been.

Field by field after OpenAI's API reference (responses "create"). Nothing is stored here, so whatever builds on a stored
response (`previous_response_id`, `conversation`, `background`, `store`: true) is refused by name, as are tools that the
provider runs. Reasoning of earlier turns is left out: no chat template of ours takes it.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import MAX_MESSAGES, MAX_PARTS, ChatCall, ChatMessage, Role
from headway.wire.fields import convert, decode, decode_object, peek, select, shown
from headway.wire.options import GenerationOptions, OptionFields, check_options
from headway.wire.schema_hints import INPUT_ITEMS, at_least, between
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
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_INPUT_FORMS: Final = "a string or a list of input items"


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


class _MessageItem(msgspec.Struct):
    role: str
    content: str | list[dict[str, msgspec.Raw]]


class _CallItem(msgspec.Struct):
    call_id: str
    name: str
    arguments: str


class _OutputItem(msgspec.Struct):
    call_id: str
    output: str | list[dict[str, msgspec.Raw]]


class _TextPart(msgspec.Struct):
    text: str


class _ToolFields(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, msgspec.Raw] | None = None
    strict: bool | None = None


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
    tools = _tools(fields.tools or [])
    options = _options(fields)
    parallel = fields.parallel_tool_calls is not False
    chat = ChatCall(
        model=fields.model,
        messages=(*_instructions(fields.instructions), *_input(fields.input)),
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


def _input(field: msgspec.Raw) -> list[ChatMessage]:
    json = bytes(field)
    try:
        if json[:1] == b'"':
            return [ChatMessage(role="user", content=decode(json, str))]
        items = decode(json, list[dict[str, msgspec.Raw]])
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"`input` must be {_INPUT_FORMS}: {error}.", param="input") from None
    if not items:
        raise InvalidRequest(f"`input` is empty; send {_INPUT_FORMS}.", param="input")
    if len(items) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`input` may hold at most {MAX_MESSAGES} items; it holds {len(items)}.", param="input"
        )
    return _Conversation().read(items)


class _Conversation:
    """Messages in the making: calls join the assistant's message before them."""

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._names: dict[str, str] = {}  # of the functions called so far, by the calls' ids
        self._num_parts = 0

    def read(self, items: list[dict[str, msgspec.Raw]]) -> list[ChatMessage]:
        for index, item in enumerate(items):
            where = f"input[{index}]."
            kind = peek(item["type"]) if "type" in item else "message"
            match kind:
                case "message":
                    self._messages.append(self._message(item, where))
                case "function_call":
                    self._add_call(item, where)
                case "function_call_output":
                    self._messages.append(self._output(item, where))
                case "reasoning":
                    continue
                case _:
                    raise InvalidRequest(
                        f"Input items of the type {shown(kind)} are not supported.", param=where + "type"
                    )
        if not self._messages:
            raise InvalidRequest("`input` holds no message; send at least one.", param="input")
        check_call_bounds([call for message in self._messages for call in message.tool_calls])
        return self._messages

    def _message(self, item: dict[str, msgspec.Raw], where: str) -> ChatMessage:
        chosen = select(
            item,
            supported=("type", "role", "content"),
            ignored=frozenset({"id", "status", "phase"}),
            neutral={},
            long=("content",),
            where=where,
        )
        fields = convert(chosen, _MessageItem, where=where)
        if fields.role not in _ROLES:
            raise InvalidRequest(
                f"`{where}role` must be system, developer, user or assistant; it is {shown(fields.role)}.",
                param=where + "role",
            )
        return ChatMessage(role=_ROLES[fields.role], content=self._text(fields.content, where + "content"))

    def _add_call(self, item: dict[str, msgspec.Raw], where: str) -> None:
        chosen = select(
            item,
            supported=("type", "call_id", "name", "arguments"),
            ignored=frozenset({"id", "status"}),
            neutral={},
            long=("arguments",),
            where=where,
        )
        fields = convert(chosen, _CallItem, where=where)
        call = ToolCall(id=fields.call_id, name=fields.name, arguments=fields.arguments)
        self._names[call.id] = call.name
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "assistant":
            joined = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))
            self._messages[-1] = joined
        else:
            self._messages.append(ChatMessage(role="assistant", content=None, tool_calls=(call,)))

    def _output(self, item: dict[str, msgspec.Raw], where: str) -> ChatMessage:
        chosen = select(
            item,
            supported=("type", "call_id", "output"),
            ignored=frozenset({"id", "status"}),
            neutral={},
            long=("output",),
            where=where,
        )
        fields = convert(chosen, _OutputItem, where=where)
        if fields.call_id not in self._names:
            raise InvalidRequest(
                f"`{where}call_id` is {shown(fields.call_id)}, which no earlier `function_call` has.",
                param=where + "call_id",
            )
        return ChatMessage(
            role="tool",
            content=self._text(fields.output, where + "output"),
            name=self._names[fields.call_id],
            tool_call_id=fields.call_id,
        )

    def _text(self, content: str | list[dict[str, msgspec.Raw]], where: str) -> str:
        if isinstance(content, str):
            return content
        self._num_parts += len(content)
        if self._num_parts > MAX_PARTS:
            raise InvalidRequest(f"`input` may hold at most {MAX_PARTS} content parts.", param="input")
        return "".join(_part(part, f"{where}[{index}].") for index, part in enumerate(content))


def _part(part: dict[str, msgspec.Raw], where: str) -> str:
    kind = peek(part["type"]) if "type" in part else None
    if kind not in _TEXT_PARTS:
        raise InvalidRequest(
            f"Content parts of the type {shown(kind)} are not supported; send text parts only.",
            param=where + "type",
        )
    chosen = select(
        part,
        supported=("type", "text"),
        ignored=frozenset({"annotations", "logprobs", "prompt_cache_breakpoint"}),
        neutral={},
        long=("text",),
        where=where,
    )
    return convert(chosen, _TextPart, where=where).text


def _tools(items: list[dict[str, msgspec.Raw]]) -> tuple[ToolDefinition, ...]:
    check_tools_size(items)
    tools = tuple(_tool(item, f"tools[{index}].") for index, item in enumerate(items))
    check_names_differ(tools)
    return tools


def _tool(item: dict[str, msgspec.Raw], where: str) -> ToolDefinition:
    kind = peek(item["type"]) if "type" in item else None
    if kind != "function":
        raise InvalidRequest(
            f"Tools of the type {shown(kind)} are not supported; `{where}type` must be `function`.",
            param=where + "type",
        )
    chosen = select(
        item,
        supported=("type", "name", "description", "parameters", "strict"),
        ignored=frozenset({"output_schema"}),
        neutral={"defer_loading": (False,)},
        long=("description", "parameters"),
        where=where,
    )
    fields = convert(chosen, _ToolFields, where=where)
    return define_tool(
        fields.name,
        fields.description,
        chosen.get("parameters"),
        strict=bool(fields.strict),
        where=where,
        schema_name="parameters",
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
