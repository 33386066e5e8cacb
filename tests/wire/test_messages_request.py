import json
from typing import Any

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatCall, ChatMessage
from headway.wire.messages_request import parse_count_call, parse_message_call
from headway.wire.tools import ToolCall, ToolChoice, ToolDefinition

WEATHER = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object"}}


def parse(**fields: Any) -> ChatCall:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse_message_call(json.dumps(body).encode())


def test_a_plain_request_is_the_chat_it_says() -> None:
    call = parse(
        system=[
            {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "brief."},
        ],
        stop_sequences=["END"],
        stream=True,
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        metadata={"user_id": "u"},
        thinking={"type": "disabled"},
    )
    assert call.messages == (
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="hi"),
    )
    options = call.options
    assert (options.max_tokens, options.stop, options.stream) == (9, ("END",), True)
    assert (options.sampling.temperature, options.sampling.top_k, options.sampling.top_p) == (0.5, 3, 0.9)
    assert (call.tools, call.tool_choice) == ((), ToolChoice("none"))


def test_calls_and_results_become_messages_of_their_own() -> None:
    call = parse(
        messages=[
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}},
                    {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "Sun"}],
                    },
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ]
    )
    assert call.messages == (
        ChatMessage(role="user", content="Weather?"),
        ChatMessage(
            role="assistant",
            content="I look.",
            tool_calls=(
                ToolCall(id="t1", name="weather", arguments='{"city": "Paris"}'),
                ToolCall(id="t2", name="weather", arguments="{}"),
            ),
        ),
        ChatMessage(role="tool", content="Sun", name="weather", tool_call_id="t1"),
        ChatMessage(role="tool", content="", name="weather", tool_call_id="t2"),
        ChatMessage(role="user", content="And now?"),
    )


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, ToolChoice("auto"), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False),
        ({"type": "any"}, ToolChoice("required"), True),
        ({"type": "tool", "name": "weather"}, ToolChoice("named", "weather"), True),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_tools_and_their_choice(choice: object, expected: ToolChoice, parallel: bool) -> None:
    call = parse(tools=[WEATHER], **({} if choice is None else {"tool_choice": choice}))
    assert call.tools == (
        ToolDefinition(name="weather", description="Tells it.", parameters={"type": "object"}),
    )
    assert (call.tool_choice, call.parallel_tool_calls) == (expected, parallel)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}] * 8193}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "a", "name": "b", "input": 1}],
                    }
                ]
            },
            "messages[0].content[0].input",
        ),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a", "input_schema": {"type": "string"}}]}, "tools[0].input_schema.type"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"n": 2}, "n"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": 5}}},
            "output_config.format",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse(**fields)
    assert info.value.param == param


def test_the_beginning_of_an_answer_is_refused_but_counted() -> None:
    messages = [{"role": "user", "content": "JSON, please."}, {"role": "assistant", "content": "{"}]
    with pytest.raises(InvalidRequest, match="beginning of an answer") as caught:
        parse(messages=messages)
    assert caught.value.param == "messages[1].role"
    assert len(parse_count_call(json.dumps({"model": "m", "messages": messages}).encode()).messages) == 2


def test_a_schema_becomes_a_grammar() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    call = parse(output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "high"})
    assert call.options.grammar is not None
    assert json.loads(call.options.grammar.source) == schema


def test_counting_takes_no_limit_and_no_sampling() -> None:
    call = parse_count_call(json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode())
    assert call.messages == (ChatMessage(role="user", content="hi"),)
    with pytest.raises(InvalidRequest):
        parse_count_call(json.dumps({"messages": [], "max_tokens": 3}).encode())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 5}}}, "output_config.format"),
        ({"temperature": 1.5}, "temperature"),
    ],
)
def test_a_refusal_names_the_field_of_this_api(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest, match=f"`{param}`") as caught:
        parse(**fields)
    assert caught.value.param == param
    assert "response_format" not in caught.value.message
