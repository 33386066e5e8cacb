"""Tools in a chat completion: the functions a model may call, whether it has to, and the calls it made before.

Fields after OpenAI's API reference (chat completions "create": `tools`, `tool_choice`, `messages[].tool_calls`). Only
functions are tools here; every other type is refused by name. It knows neither how a model writes a call nor what a
JSON schema means: `gateway/tool_syntax.py` and the grammar library do.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import convert, decode, peek, select, shown

MAX_TOOLS: Final = 128
"""OpenAI's limit."""
MAX_TOOLS_BYTES: Final = 256 * 1024
"""JSON of all definitions; agents with a hundred tools send about 100 KiB. Decoded on the event loop, in milliseconds."""
MAX_SCHEMA_DEPTH: Final = 64
"""Objects and lists inside each other; a schema takes two levels for every level of what it describes."""
MAX_TOOL_CALLS: Final = 8192
"""Over all messages; as many as there may be content parts."""
MAX_ARGUMENT_ITEMS: Final = 262_144
"""Characters `[`, `{` and `,` in the arguments of all messages: bounds what decoding them builds, some 100 bytes each."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""OpenAI takes 64 characters without dots; longer and dotted names come from other APIs' clients."""
_TOOL_IGNORED: Final = frozenset({"cache_control"})
"""A hint for prefix caches that need it."""
_CALL_IGNORED: Final = frozenset({"index"})
"""The position in a stream, which some clients send back."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call.

    parameters   JSON schema of its arguments, an object; None = it takes none
    strict       the arguments must match the schema
    """

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool = False


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model calls: never, as it likes, at least once, or the one function `name` (mode "named" only)."""

    mode: Literal["none", "auto", "required", "named"]
    name: str | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call the model made. `arguments`: the text it wrote, which should be a JSON object but need not be."""

    id: str
    name: str
    arguments: str


class _ToolFields(msgspec.Struct):
    type: str
    function: dict[str, msgspec.Raw]


class _FunctionFields(msgspec.Struct, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, msgspec.Raw] | None = None
    strict: bool | None = None


class _CallFields(msgspec.Struct, kw_only=True):
    id: str
    type: str = "function"
    function: dict[str, msgspec.Raw]


class _CalledFields(msgspec.Struct):
    name: str
    arguments: str


ReadTool = Callable[[dict[str, msgspec.Raw], str], ToolDefinition]
"""Reads one tool in an API's form; the text is its path ("tools[2]."). Raises InvalidRequest."""


def parse_tools(items: list[dict[str, msgspec.Raw]], read_tool: ReadTool) -> tuple[ToolDefinition, ...]:
    """Check `tools`; raises InvalidRequest that names the field."""
    _check_number(items)
    tools = tuple(read_tool(item, f"tools[{index}].") for index, item in enumerate(items))
    _check_names_differ(tools)
    return tools


def check_tools_bytes(tools: msgspec.Raw | None) -> None:
    """Check how much JSON `tools` is, before any of it is built; raises InvalidRequest."""
    if tools is not None and (num_bytes := memoryview(tools).nbytes) > MAX_TOOLS_BYTES:
        raise InvalidRequest(
            f"`tools` may have at most {MAX_TOOLS_BYTES} bytes of JSON; it has {num_bytes}.", param="tools"
        )


def _check_number(items: list[dict[str, msgspec.Raw]]) -> None:
    if len(items) > MAX_TOOLS:
        raise InvalidRequest(
            f"`tools` may hold at most {MAX_TOOLS} tools; it holds {len(items)}.", param="tools"
        )


def _check_names_differ(tools: tuple[ToolDefinition, ...]) -> None:
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"`tools` names the function {shown(twice)} more than once.", param="tools")


def define_tool(
    name: str,
    description: str | None,
    schema: msgspec.Raw | None,
    *,
    strict: bool,
    where: str,
    schema_name: str,
) -> ToolDefinition:
    """Check one function's parts and return it; `schema_name` is what its API calls the schema. Raises InvalidRequest."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"`{where}name` must have 1 to 128 letters, digits, `_`, `-` or `.`; it is {shown(name)}.",
            param=where + "name",
        )
    parameters = None if schema is None else _schema(schema, where + schema_name)
    return ToolDefinition(name=name, description=description, parameters=parameters, strict=strict)


def parse_tool_choice(
    value: str | dict[str, msgspec.Raw] | None, tools: tuple[ToolDefinition, ...]
) -> ToolChoice:
    """Check `tool_choice` of chat completions; None = auto if there are tools. Raises InvalidRequest."""
    if value is None:
        choice = ToolChoice("auto")
    elif isinstance(value, str):
        if value not in ("none", "auto", "required"):
            raise InvalidRequest(
                f"`tool_choice` must be none, auto, required or a function; it is {shown(value)}.",
                param="tool_choice",
            )
        choice = ToolChoice(value)  # type: ignore[arg-type]  # mypy does not narrow by `in`
    else:
        choice = ToolChoice("named", _chosen_name(value))
    return check_tool_choice(choice, tools)


def check_tool_choice(choice: ToolChoice, tools: tuple[ToolDefinition, ...]) -> ToolChoice:
    """Return the choice as it applies to `tools`: "none" without any. Raises InvalidRequest."""
    if tools:
        if choice.name is not None and choice.name not in [tool.name for tool in tools]:
            raise InvalidRequest(
                f"`tool_choice` names the function {shown(choice.name)}, which is not in `tools`.",
                param="tool_choice",
            )
        return choice
    if choice.mode in ("required", "named"):
        raise InvalidRequest("`tool_choice` asks for a call, but `tools` is empty.", param="tool_choice")
    return ToolChoice("none")


def parse_tool_calls(items: list[dict[str, msgspec.Raw]], where: str) -> tuple[ToolCall, ...]:
    """Check the calls of an assistant's message; `where`: its path ("messages[2].tool_calls"). Raises InvalidRequest."""
    return tuple(_call(item, f"{where}[{index}].") for index, item in enumerate(items))


def check_call_bounds(calls: list[ToolCall]) -> None:
    """Check what the calls of all messages cost together; raises InvalidRequest."""
    if len(calls) > MAX_TOOL_CALLS:
        raise InvalidRequest(
            f"`messages` may hold at most {MAX_TOOL_CALLS} tool calls; it holds {len(calls)}.",
            param="messages",
        )
    num_items = sum(call.arguments.count(char) for call in calls for char in "[{,")
    if num_items > MAX_ARGUMENT_ITEMS:
        raise InvalidRequest("The arguments of the tool calls in `messages` are too long.", param="messages")


def chat_tool(item: dict[str, msgspec.Raw], where: str) -> ToolDefinition:
    """Read a tool in the form of chat completions; see `ReadTool`."""
    _check_is_function(item, where)
    chosen = select(
        item,
        supported=("type", "function"),
        ignored=_TOOL_IGNORED,
        neutral={},
        long=("function",),
        where=where,
    )
    function = convert(chosen, _ToolFields, where=where).function
    return read_function(function, where + "function.", ignored=_TOOL_IGNORED, neutral={})


def read_function(
    item: dict[str, msgspec.Raw],
    where: str,
    *,
    ignored: Collection[str],
    neutral: Mapping[str, Collection[object]],
) -> ToolDefinition:
    """Read the object at `where` that has a function's fields in OpenAI's words; the rest as in `fields.select`."""
    chosen = select(
        item,
        supported=_FunctionFields.__struct_fields__,
        ignored=ignored,
        neutral=neutral,
        long=("description", "parameters"),
        where=where,
    )
    fields = convert(chosen, _FunctionFields, where=where)
    return define_tool(
        fields.name,
        fields.description,
        chosen.get("parameters"),
        strict=bool(fields.strict),
        where=where,
        schema_name="parameters",
    )


def _schema(json: msgspec.Raw, where: str) -> dict[str, object]:
    too_deep = f"`{where}` is nested more than {MAX_SCHEMA_DEPTH} levels deep."
    try:
        schema = decode(memoryview(json), dict[str, object])
    except RecursionError:
        raise InvalidRequest(too_deep, param=where) from None
    except msgspec.ValidationError as error:  # a number beyond every float
        raise InvalidRequest(
            f"`{where}` is malformed: {str(error).partition(' - ')[0]}.", param=where
        ) from None
    level: list[object] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise InvalidRequest(too_deep, param=where)
    if schema.get("type", "object") != "object":
        raise InvalidRequest(
            f"`{where}.type` must be `object`: a function's arguments are an object.", param=where + ".type"
        )
    return schema


def _inside(value: object) -> list[object]:
    match value:
        case dict():
            return list(value.values())
        case list():
            return value
        case _:
            return []


def _chosen_name(value: dict[str, msgspec.Raw]) -> str:
    where = "tool_choice."
    _check_is_function(value, where)
    chosen = select(value, supported=("type", "function"), ignored=(), neutral={}, long=(), where=where)
    function = convert(chosen, _ToolFields, where=where).function
    return convert(function, _ChosenFields, where=where + "function.").name


class _ChosenFields(msgspec.Struct, forbid_unknown_fields=True):
    name: str


def _call(item: dict[str, msgspec.Raw], where: str) -> ToolCall:
    _check_is_function(item, where, default="function")
    chosen = select(
        item,
        supported=_CallFields.__struct_fields__,
        ignored=_CALL_IGNORED,
        neutral={},
        long=("function",),
        where=where,
    )
    fields = convert(chosen, _CallFields, where=where)
    where += "function."
    chosen = select(
        fields.function,
        supported=("name", "arguments"),
        ignored=(),
        neutral={},
        long=("arguments",),
        where=where,
    )
    called = convert(chosen, _CalledFields, where=where)
    return ToolCall(id=fields.id, name=called.name, arguments=called.arguments)


def _check_is_function(item: dict[str, msgspec.Raw], where: str, default: str | None = None) -> None:
    kind = peek(item["type"]) if "type" in item else default
    if kind != "function":
        raise InvalidRequest(
            f"Tools of the type {shown(kind)} are not supported; `{where}type` must be `function`.",
            param=where + "type",
        )
