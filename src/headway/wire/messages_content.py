"""The Messages API's `system` and `messages` as a conversation: text, tool calls and their results.

Content blocks after Anthropic's API reference (messages "create"). Results of tools become messages of their own, as chat
templates have them. Thinking of earlier turns is left out, as the API itself does.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import MAX_MESSAGES, MAX_PARTS, ChatMessage
from headway.wire.fields import convert, kind_of, select, shown
from headway.wire.tools import ToolCall, check_call_bounds

_BLOCK_IGNORED: Final = frozenset({"cache_control", "citations"})


class _MessageFields(msgspec.Struct):
    role: str
    content: str | list[dict[str, msgspec.Raw]]


class _TextBlock(msgspec.Struct):
    text: str


class _ToolUseBlock(msgspec.Struct):
    id: str
    name: str
    input: dict[str, msgspec.Raw]


class _ToolResultBlock(msgspec.Struct):
    tool_use_id: str
    content: str | list[dict[str, msgspec.Raw]] | None = None
    is_error: bool | None = None


def parse_system(system: str | list[dict[str, msgspec.Raw]] | None) -> Iterator[ChatMessage]:
    """Yield the system's message, if there is one; raises InvalidRequest."""
    if system:
        yield ChatMessage(role="system", content=_text(system, "system"))


def parse_block_messages(items: list[dict[str, msgspec.Raw]]) -> list[ChatMessage]:
    """Parse and check a conversation; raises InvalidRequest that names the block."""
    if not items:
        raise InvalidRequest("`messages` is empty; send at least one message.", param="messages")
    if len(items) > MAX_MESSAGES:
        raise InvalidRequest(
            f"`messages` may hold at most {MAX_MESSAGES} messages; it holds {len(items)}.", param="messages"
        )
    messages: list[ChatMessage] = []
    names: dict[str, str] = {}  # of the tools called so far, by the calls' ids
    num_blocks = 0
    for index, item in enumerate(items):
        where = f"messages[{index}]."
        chosen = select(
            item, supported=("role", "content"), ignored=(), neutral={}, long=("content",), where=where
        )
        fields = convert(chosen, _MessageFields, where=where)
        if isinstance(fields.content, list):
            num_blocks += len(fields.content)
            if num_blocks > MAX_PARTS:
                raise InvalidRequest(
                    f"`messages` may hold at most {MAX_PARTS} content blocks.", param="messages"
                )
        match fields.role:
            case "user":
                messages += _user(fields.content, names, where + "content")
            case "assistant":
                message = _assistant(fields.content, where + "content")
                names |= {call.id: call.name for call in message.tool_calls}
                messages.append(message)
            case "system":
                messages.append(ChatMessage(role="system", content=_text(fields.content, where + "content")))
            case _:
                raise InvalidRequest(
                    f"`{where}role` must be user or assistant; it is {shown(fields.role)}.",
                    param=where + "role",
                )
    check_call_bounds([call for message in messages for call in message.tool_calls])
    return messages


def _user(
    content: str | list[dict[str, msgspec.Raw]], names: dict[str, str], where: str
) -> Iterator[ChatMessage]:
    """Results of tools become messages of their own; the text around them one of the user's."""
    if isinstance(content, str):
        yield ChatMessage(role="user", content=content)
        return
    parts: list[str] = []
    for index, block in enumerate(content):
        at = f"{where}[{index}]."
        if kind_of(block) == "tool_result":
            yield _tool_result(block, names, at)
        else:
            parts.append(_text_block(block, at))
    if parts or not content:
        yield ChatMessage(role="user", content="".join(parts))


def _assistant(content: str | list[dict[str, msgspec.Raw]], where: str) -> ChatMessage:
    if isinstance(content, str):
        return ChatMessage(role="assistant", content=content)
    parts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(content):
        at = f"{where}[{index}]."
        match kind_of(block):
            case "thinking" | "redacted_thinking":
                continue
            case "tool_use":
                calls.append(_tool_use(block, at))
            case _:
                parts.append(_text_block(block, at))
    return ChatMessage(
        role="assistant",
        content="".join(parts) if parts or not calls else None,
        tool_calls=tuple(calls),
    )


def _tool_use(block: dict[str, msgspec.Raw], where: str) -> ToolCall:
    chosen = select(
        block,
        supported=("type", "id", "name", "input"),
        ignored=_BLOCK_IGNORED,
        neutral={},
        long=("input",),
        where=where,
    )
    fields = convert(chosen, _ToolUseBlock, where=where)
    return ToolCall(id=fields.id, name=fields.name, arguments=bytes(chosen["input"]).decode())


def _tool_result(block: dict[str, msgspec.Raw], names: dict[str, str], where: str) -> ChatMessage:
    chosen = select(
        block,
        supported=("type", "tool_use_id", "content", "is_error"),
        ignored=_BLOCK_IGNORED,
        neutral={},
        long=("content",),
        where=where,
    )
    fields = convert(chosen, _ToolResultBlock, where=where)
    if fields.tool_use_id not in names:
        raise InvalidRequest(
            f"`{where}tool_use_id` is {shown(fields.tool_use_id)}, which no earlier `tool_use` block has.",
            param=where + "tool_use_id",
        )
    return ChatMessage(
        role="tool",
        content=_text(fields.content or "", where + "content"),
        name=names[fields.tool_use_id],
        tool_call_id=fields.tool_use_id,
    )


def _text(content: str | list[dict[str, msgspec.Raw]], where: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text_block(block, f"{where}[{index}].") for index, block in enumerate(content))


def _text_block(block: dict[str, msgspec.Raw], where: str) -> str:
    kind = kind_of(block)
    if kind != "text":
        raise InvalidRequest(
            f"Content blocks of the type {shown(kind)} are not supported here.", param=where + "type"
        )
    chosen = select(
        block, supported=("type", "text"), ignored=_BLOCK_IGNORED, neutral={}, long=("text",), where=where
    )
    return convert(chosen, _TextBlock, where=where).text
