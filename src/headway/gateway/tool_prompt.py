"""Conversation and tools as a chat template takes them: the values that `transformers` documents ("Tool use").

Arguments of earlier calls are handed over decoded, as templates write them with `tojson`; text that is no JSON object
stays text. A tool is described in one fixed way whatever its sender's order of fields, so that equal tools make equal
prompts.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.gateway.served import ChatTemplate
from headway.gateway.tool_support import ToolSupport
from headway.wire.chat_request import ChatMessage
from headway.wire.tools import ToolCall, ToolDefinition

_NUM_ID_CHARS: Final = 9
"""What Mistral's templates insist on."""


def render(
    template: ChatTemplate,
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolDefinition],
    support: ToolSupport | None,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the prompt of a conversation in which `tools` may be called; raises InvalidRequest.

    support   how the model takes tools; may be None if there are none
    extra     further names that the template may read
    """
    if support is None and any(m.tool_calls for m in messages) and "tool_calls" not in template.source:
        raise InvalidRequest(
            "The model's chat template has no place for tool calls; leave `tool_calls` out of the messages.",
            param="messages",
        )
    values = [_message(message, support) for message in messages]
    described = [{"type": "function", "function": _function(tool)} for tool in tools]
    if support is None or not support.in_system:
        return template.render(values, tools=described or None, **extra)
    if tools:
        if values[0]["role"] != "system":
            values.insert(0, {"role": "system", "content": ""})
        functions = [tool["function"] for tool in described]
        values[0] |= {"tools": json.dumps(functions, ensure_ascii=False)}
    return template.render(values, **extra)


def _message(message: ChatMessage, support: ToolSupport | None) -> dict[str, object]:
    # Templates that add strings cannot take None; for those that look at `tool_calls` the text makes no difference.
    values: dict[str, object] = {"role": message.role, "content": message.content or ""}
    if message.name is not None:
        values["name"] = message.name
    if message.tool_calls and support is not None and not support.shows_calls:
        values["content"] = (message.content or "") + _written(message.tool_calls, support)
    elif message.tool_calls:
        values["tool_calls"] = [_call(call, support) for call in message.tool_calls]
    if message.tool_call_id is not None:
        values["tool_call_id"] = _id(message.tool_call_id, support)
    return values


def _id(call_id: str, support: ToolSupport | None) -> str:
    if support is None or not support.syntax.has_short_ids:
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:_NUM_ID_CHARS]


def _written(calls: Sequence[ToolCall], support: ToolSupport) -> str:
    """Return calls as the model writes them."""
    syntax = support.syntax
    objects = [
        json.dumps({"name": call.name, syntax.arguments_key: _arguments(call.arguments)}, ensure_ascii=False)
        for call in calls
    ]
    if syntax.is_list:
        objects = [syntax.list_begin + ", ".join(objects) + "]"]
    blocks = (syntax.begin + syntax.margin + text + syntax.margin + syntax.end for text in objects)
    return syntax.margin.join(blocks)


def _call(call: ToolCall, support: ToolSupport | None) -> dict[str, object]:
    return {
        "type": "function",
        "id": _id(call.id, support),
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
