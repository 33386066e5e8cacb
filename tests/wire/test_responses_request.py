import json
from typing import Any

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatMessage
from headway.wire.responses_request import ResponsesCall, parse_responses
from headway.wire.tools import ToolCall, ToolChoice

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}


def parse(**fields: Any) -> ResponsesCall:
    return parse_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def test_a_plain_request_is_the_chat_it_says() -> None:
    call = parse(
        instructions="Be brief.",
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.9,
        stream=True,
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "none"},
        truncation="disabled",
        metadata={"a": "b"},
    )
    assert call.chat.messages == (
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="hi"),
    )
    assert (call.model, call.options.max_tokens, call.options.stream) == ("m", 7, True)
    assert (call.options.sampling.temperature, call.options.sampling.top_p) == (0.5, 0.9)


def test_items_become_messages_and_calls_join_the_assistants() -> None:
    call = parse(
        input=[
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "id": "r", "summary": []},
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
            },
            {**CALL, "id": "fc_1", "status": "completed"},
            {**CALL, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "sun"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "rain"}],
            },
            {**CALL, "call_id": "c3"},
        ]
    )
    calls = [ToolCall(id=f"c{number}", name="weather", arguments="{}") for number in (1, 2, 3)]
    assert call.chat.messages == (
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="Weather?"),
        ChatMessage(role="assistant", content="I look.", tool_calls=(calls[0], calls[1])),
        ChatMessage(role="tool", content="sun", name="weather", tool_call_id="c1"),
        ChatMessage(role="tool", content="rain", name="weather", tool_call_id="c2"),
        ChatMessage(role="assistant", content=None, tool_calls=(calls[2],)),
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice("auto")),
        ("required", ToolChoice("required")),
        ("none", ToolChoice("none")),
        ({"type": "function", "name": "weather"}, ToolChoice("named", "weather")),
    ],
)
def test_tools_and_their_choice(choice: object, expected: ToolChoice) -> None:
    call = parse(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    assert [tool.name for tool in call.chat.tools] == ["weather"]
    assert (call.chat.tool_choice, call.chat.parallel_tool_calls) == (expected, False)


def test_formats() -> None:
    assert parse(text={"format": {"type": "text"}}).options.grammar is None
    grammar = parse(text={"format": {"type": "json_object"}}).options.grammar
    assert grammar is not None
    assert json.loads(grammar.source) == {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [{"role": "user", "content": "a"}] * 8193}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "a"}]}, "input[0].call_id"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"previous_response_id": "x"}, "previous_response_id"),
        ({"conversation": "x"}, "conversation"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp", "name": "x"}}, "tool_choice.type"),
        ({"text": {"verbosity": "high"}}, "text.verbosity"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format"),
        ({"n": 2}, "n"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse(**fields)
    assert info.value.param == param
