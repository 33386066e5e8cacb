"""The Responses API's `input` as a conversation: messages, function calls and their outputs.

Items after OpenAI's API reference (responses "create", `input`). A call joins the assistant's message before it, as chat
templates have them. Reasoning of earlier turns is left out: no chat template of ours takes it.
"""

from typing import Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import MAX_MESSAGES, MAX_PARTS, ChatMessage, Role
from headway.wire.fields import convert, decode, kind_of, peek, select, shown
from headway.wire.tools import ToolCall, check_call_bounds

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_INPUT_FORMS: Final = "a string or a list of input items"


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


def parse_input(field: msgspec.Raw) -> list[ChatMessage]:
    """Parse and check `input`; raises InvalidRequest that names the item."""
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
    kind = kind_of(part)
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
