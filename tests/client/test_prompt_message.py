import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.prompt_message import Prompt, message_fields, read_message, stable_tools
from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatMessage, parse_chat
from headway.wire.tools import ToolCall

CALL = ToolCall(id="call_1", name="find", arguments='{"text": "x"}')


def test_an_answer_as_openai_sends_it_loses_what_no_prompt_shows() -> None:
    answer: dict[str, object] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "tool_calls": None,
    }
    assert read_message(answer) == ChatMessage(role="assistant", content="Hi")


def test_calls_and_their_results_come_back_as_they_were() -> None:
    calling = ChatMessage(role="assistant", content=None, tool_calls=(CALL,))
    result = ChatMessage(role="tool", content="3 hits", tool_call_id="call_1", name="find")
    for message in (calling, result):
        assert read_message(message_fields(message)) == message
    assert message_fields(calling)["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"text": "x"}'}}
    ]


def test_text_parts_are_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_message({"role": "user", "content": parts}).content == "ab"


@pytest.mark.parametrize("fields", [{}, {"role": "robot"}, {"role": "user", "content": 3}])
def test_what_is_no_message_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="no message of a chat"):
        read_message(fields)


def tool(name: str, **schema: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Find.", "parameters": schema}}


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same object with its keys in another order, but for those of `properties`."""
    if isinstance(value, list):
        return [shuffled(one, rng) for one in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {
        key: {name: shuffled(one, rng) for name, one in value[key].items()}
        if key == "properties"
        else shuffled(value[key], rng)
        for key in keys
    }


TOOLS = [
    tool(
        "find",
        type="object",
        properties={"text": {"type": "string"}, "path": {"type": "string"}},
        required=["text"],
    ),
    tool(
        "edit", type="object", properties={"properties": {"type": "object", "description": "new"}, "at": {}}
    ),
    tool("done"),
]


@given(st.integers())
def test_equal_tools_are_equal_bytes_in_whatever_order_they_come(seed: int) -> None:
    rng = random.Random(seed)
    other = shuffled(TOOLS, rng)
    rng.shuffle(other)
    assert stable_tools(other) == stable_tools(TOOLS)


def test_tools_keep_what_they_say_and_their_arguments_order() -> None:
    text = stable_tools(TOOLS)
    assert [one["function"]["name"] for one in json.loads(text)] == ["done", "edit", "find"]
    assert json.loads(text) == TOOLS[::-1]
    assert text.index('"text":{') < text.index('"path":{')
    assert stable_tools([]) == ""


def test_a_prompt_is_the_fields_of_a_request_that_the_gateway_takes() -> None:
    messages = (ChatMessage(role="system", content="Help."), ChatMessage(role="user", content="Hi"))
    fields = Prompt(messages, stable_tools(TOOLS)).fields()
    call = parse_chat(msgspec.json.encode(fields))
    assert call.messages == messages
    assert [one.name for one in call.tools] == ["done", "edit", "find"]
    assert set(Prompt(messages).fields()) == {"messages"}
