"""Conversation and tools as a chat template takes them: the values that `transformers` documents ("Tool use").

Arguments of earlier calls are handed over decoded, as templates write them with `tojson`; text that is no JSON object
stays text. A tool is described in one fixed way whatever its sender's order of fields, so that equal tools make equal
prompts. It knows no template.
"""

from collections.abc import Sequence

import msgspec

from headway.wire.chat_request import ChatMessage
from headway.wire.tools import ToolCall, ToolDefinition


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, object]]:
    """Return what a template calls `messages`."""
    return [_message(message) for message in messages]


def template_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, object]]:
    """Return what a template calls `tools`. Functions without parameters get the schema of an empty object."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _message(message: ChatMessage) -> dict[str, object]:
    # Templates that add strings cannot take None; for those that look at `tool_calls` the text makes no difference.
    values: dict[str, object] = {"role": message.role, "content": message.content or ""}
    if message.name is not None:
        values["name"] = message.name
    if message.tool_calls:
        values["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = message.tool_call_id
    return values


def _call(call: ToolCall) -> dict[str, object]:
    return {
        "type": "function",
        "id": call.id,
        "function": {"name": call.name, "arguments": _arguments(call.arguments)},
    }


def _arguments(text: str) -> dict[str, object] | str:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _function(tool: ToolDefinition) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return function
