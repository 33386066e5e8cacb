import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatCall, ChatMessage, parse_chat
from headway.wire.tools import (
    MAX_ARGUMENT_ITEMS,
    MAX_SCHEMA_DEPTH,
    MAX_TOOLS,
    MAX_TOOLS_BYTES,
    ToolCall,
    ToolChoice,
    ToolDefinition,
)

USER = {"role": "user", "content": "hi"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def parse(**fields: object) -> ChatCall:
    return parse_chat(json.dumps({"messages": [USER], **fields}).encode())


def refused(**fields: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as info:
        parse(**fields)
    assert info.value.message.endswith(".")
    return info.value


def function(**fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **fields}}


def test_a_function_with_all_its_fields() -> None:
    tool = function(name="get-weather_2.0", description="Tell it.", parameters=SCHEMA, strict=True)
    call = parse(tools=[tool, function()])
    assert call.tools == (
        ToolDefinition(name="get-weather_2.0", description="Tell it.", parameters=SCHEMA, strict=True),
        ToolDefinition(name="f"),
    )
    assert call.tool_choice == ToolChoice("auto")
    assert call.parallel_tool_calls


def test_no_tools_are_no_tools_whatever_else_is_said() -> None:
    nothing: list[dict[str, object]] = [{}, {"tools": []}, {"tools": None}]
    nothing += [{"tool_choice": "auto"}, {"tool_choice": "none"}]
    for fields in nothing:
        call = parse(**fields)
        assert (call.tools, call.tool_choice) == ((), ToolChoice("none"))


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "get_weather"}}, ToolChoice("named", "get_weather")),
    ],
)
def test_every_choice(value: object, choice: ToolChoice) -> None:
    assert parse(tools=[WEATHER], tool_choice=value).tool_choice == choice


def test_parallel_calls_can_be_declined() -> None:
    assert not parse(tools=[WEATHER], parallel_tool_calls=False).parallel_tool_calls


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{**WEATHER, "extra": 1}]}, "tools[0].extra"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [function(name="")]}, "tools[0].function.name"),
        ({"tools": [function(name='a"b')]}, "tools[0].function.name"),
        ({"tools": [function(name="x" * 129)]}, "tools[0].function.name"),
        ({"tools": [function(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [function(parameters={"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [function(parameters=nested(MAX_SCHEMA_DEPTH))]}, "tools[0].function.parameters"),
        ({"tools": [function(strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [function(returns={})]}, "tools[0].function.returns"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [function(name=f"f{i}") for i in range(MAX_TOOLS + 1)]}, "tools"),
        ({"tools": [function(description="x" * MAX_TOOLS_BYTES)]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": 5}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
        ),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_malformed_tools_are_refused_and_named(fields: dict[str, object], param: str) -> None:
    assert refused(**fields).param == param


def test_a_schema_as_deep_as_may_be_is_taken() -> None:
    assert parse(tools=[function(parameters=nested(MAX_SCHEMA_DEPTH - 1))]).tools


def test_calls_and_their_results_are_messages() -> None:
    call = parse(
        messages=[
            USER,
            {**CALLING, "tool_calls": [{**CALL, "index": 0}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
            {"role": "assistant", "content": "x", "tool_calls": [{**CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "", "name": "other"},
        ]
    )
    first = ToolCall(id="c1", name="get_weather", arguments='{"city": "Paris"}')
    assert call.messages[1:] == (
        ChatMessage(role="assistant", content=None, tool_calls=(first,)),
        ChatMessage(role="tool", content="sunny", name="get_weather", tool_call_id="c1"),
        ChatMessage(role="assistant", content="x", tool_calls=(msgspec.structs.replace(first, id="c2"),)),
        ChatMessage(role="tool", content="", name="other", tool_call_id="c1"),
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{**CALLING, "role": "user"}], "messages[0].tool_calls"),
        ([{**CALLING, "tool_calls": [{**CALL, "type": "custom"}]}], "messages[0].tool_calls[0].type"),
        ([{**CALLING, "tool_calls": [{"type": "function"}]}], "messages[0].tool_calls[0].id"),
        (
            [{**CALLING, "tool_calls": [{**CALL, "function": {"name": "f"}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            [{**CALLING, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        ([{**CALLING, "tool_calls": []}], "messages[0].content"),
        ([CALLING, {"role": "tool", "content": "x"}], "messages[1].tool_call_id"),
        ([CALLING, {"role": "tool", "content": "x", "tool_call_id": "c9"}], "messages[1].tool_call_id"),
        ([{"role": "tool", "content": "x", "tool_call_id": "c1"}, CALLING], "messages[0].tool_call_id"),
        ([CALLING, {"role": "tool", "tool_call_id": "c1"}], "messages[1].content"),
        ([CALLING, {**USER, "tool_call_id": "c1"}], "messages[1].tool_call_id"),
        (
            [
                {
                    **CALLING,
                    "tool_calls": [
                        {**CALL, "function": {"name": "f", "arguments": "[" * (MAX_ARGUMENT_ITEMS + 1)}}
                    ],
                }
            ],
            "messages",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_malformed_calls_and_results_are_refused_and_named(
    messages: list[dict[str, object]], param: str
) -> None:
    assert refused(messages=messages).param == param


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["type", "function", "name", "parameters", "strict", "description", "id", "arguments"]
)
_TOOL = st.dictionaries(_KEYS, _JSON | st.dictionaries(_KEYS, _JSON | st.just("function")), max_size=4)


@given(st.lists(_TOOL | _JSON, max_size=3), _JSON | _TOOL, st.lists(_TOOL, max_size=2))
def test_any_json_is_taken_or_refused_with_a_sentence(tools: object, choice: object, calls: object) -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": calls}
    sentence = "."
    try:
        assert parse(tools=tools, tool_choice=choice, messages=[message]).messages
    except InvalidRequest as error:
        sentence = error.message
    assert sentence.endswith(".")
