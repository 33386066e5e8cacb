"""Messages and tools of a prompt: from what programs have (OpenAI's JSON) to frozen values and back, always the same bytes.

What a prompt does not show (refusals, annotations, audio) is dropped, and what it does is written in one order, so that a
message that was sent once is sent again as the same tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatMessage, Role
from headway.wire.tools import ToolCall

_OWN_ORDER: Final = "properties"
"""The one object of a tool whose order means something: arguments are written in it."""


class _Function(msgspec.Struct, kw_only=True):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct, kw_only=True):
    id: str
    function: _Function


class _Part(msgspec.Struct, kw_only=True):
    text: str = ""


class _Fields(msgspec.Struct, kw_only=True):
    role: Role
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request sends: `messages` in OpenAI's order, `tools_json` a list of tools, "" if there are none."""

    messages: tuple[ChatMessage, ...]
    tools_json: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the request's fields `messages` and, if there are any, `tools`."""
        fields: dict[str, Any] = {"messages": [message_fields(message) for message in self.messages]}
        if self.tools_json:
            fields["tools"] = msgspec.json.decode(self.tools_json)
        return fields


def read_message(fields: Mapping[str, object]) -> ChatMessage:
    """Return a message in OpenAI's form, such as an answer's `message`; raises InvalidRequest that says what it lacks."""
    try:
        found = msgspec.convert(fields, _Fields)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"This is no message of a chat: {error}.", param="messages") from error
    content = found.content
    return ChatMessage(
        role=found.role,
        content="".join(part.text for part in content) if isinstance(content, list) else content,
        name=found.name,
        tool_calls=tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in found.tool_calls or ()
        ),
        tool_call_id=found.tool_call_id,
    )


def message_fields(message: ChatMessage) -> dict[str, Any]:
    """Return a message in OpenAI's form."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def stable_tools(tools: Sequence[Mapping[str, object]]) -> str:
    """Return tools as JSON that depends on what they are alone: sorted by name, keys sorted; "" if there are none.

    Only a schema's `properties` keep their order, in which a model writes its arguments.
    """
    if not tools:
        return ""
    ordered = sorted((_ordered(tool) for tool in tools), key=_name)
    return msgspec.json.encode(ordered).decode()


def _name(tool: Any) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""


def _ordered(value: object, *, keep: bool = False) -> Any:
    if isinstance(value, Mapping):
        keys = list(value) if keep else sorted(value)
        return {key: _ordered(value[key], keep=not keep and key == _OWN_ORDER) for key in keys}
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in value]
    return value
