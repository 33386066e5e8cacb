"""Anthropic's Messages API on top of chat: the same prompts, grammars and events, written in another shape."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headway.core.errors import HeadwayError
from headway.core.messages import EngineInfo, Usage
from headway.core.request import Grammar
from headway.gateway.answer import Answer, AnswerHead, CollectedCall, CollectedChoice
from headway.gateway.chat import ChatEndpoint
from headway.gateway.config import GatewayConfig
from headway.gateway.served import ServedModel, TextMaker, Tokenizer
from headway.gateway.text_events import ChoiceEnd, Piece, TextEvent, ToolCallArguments, ToolCallStart
from headway.wire import sse
from headway.wire.chat_request import ChatCall
from headway.wire.chat_response import FinishReason
from headway.wire.messages_request import parse_message_call
from headway.wire.messages_response import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageEnd,
    MessageStart,
    MessageStop,
    StopReason,
    StreamEvent,
    TextBlock,
    TextDelta,
    TokenCount,
    ToolUseBlock,
    message_error_event,
    message_usage,
)

_REASONS: Final[dict[FinishReason, StopReason]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


class MessagesEndpoint:
    """What is special about `/v1/messages`: the shapes. Everything else is chat's."""

    id_prefix = "msg_"
    prompt_param = "messages"

    def __init__(self, chat: ChatEndpoint) -> None:
        self._chat = chat

    def parse(self, body: bytes) -> ChatCall:
        """Parse a request's body; raises InvalidRequest."""
        return parse_message_call(body)

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit of an answer when the request names none: here it has to."""
        return self._chat.default_max_tokens(config)

    def tokenise(self, call: ChatCall, served: ServedModel, info: EngineInfo) -> tuple[tuple[int, ...], ...]:
        """Return the one prompt's token ids (runs on the tokenising thread); raises RequestError."""
        return self._chat.tokenise(call, served, info)

    def grammar(self, call: ChatCall, served: ServedModel) -> Grammar | None:
        """Return what the answer must match; raises InvalidRequest."""
        return self._chat.grammar(call, served)

    def text_maker(self, call: ChatCall, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text."""
        return self._chat.text_maker(call, served, call_key)

    def answer(self, call: ChatCall, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        del call, tokenizer
        return MessageAnswer(head)


class MessageAnswer:
    """Writes the one answer of a call. A stream's blocks come one after the other, text and calls as they alternate."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._num_blocks = 0
        self._open: type[TextBlock] | type[ToolUseBlock] | None = None
        self._begun = False
        self._end = MessageEnd("end_turn", None)

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode what a step brought."""
        parts: list[bytes] = [self._begin()]
        for event in events:
            match event:
                case Piece():
                    if self._open is not TextBlock:
                        parts.append(self._start_block(TextBlock(text="")))
                    parts.append(self._delta(TextDelta(event.text)))
                case ToolCallStart():
                    parts.append(self._start_block(ToolUseBlock(id=event.id, name=event.name, input={})))
                case ToolCallArguments():
                    parts.append(self._delta(InputJsonDelta(event.text)))
                case ChoiceEnd():
                    parts.append(self._stop_block())
                    self._end = _end(event.reason, event.stop)
        return b"".join(parts)

    def stream_end(self, usage: Usage) -> bytes:
        """Encode why the answer ended, with the usage, and the end."""
        return self._begin() + _encode(MessageDelta(self._end, message_usage(usage))) + _encode(MessageStop())

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode an error; nothing follows it."""
        return message_error_event(error)

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> Message:
        """Build the response's body."""
        (choice,) = choices
        content: list[Block] = []
        if choice.text or not choice.calls:
            content.append(TextBlock(text=choice.text))
        content += [_tool_use(call) for call in choice.calls]
        end = _end(choice.reason, choice.stop)
        return self._message(content, end.stop_reason, end.stop_sequence, usage)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        nothing = Usage(prompt_tokens=self._head.num_prompt_tokens, completion_tokens=0)
        return _encode(MessageStart(self._message([], None, None, nothing)))

    def _message(
        self, content: list[Block], reason: StopReason | None, stop: str | None, usage: Usage
    ) -> Message:
        return Message(
            id=self._head.id,
            model=self._head.model,
            content=content,
            stop_reason=reason,
            stop_sequence=stop,
            usage=message_usage(usage),
        )

    def _start_block(self, block: Block) -> bytes:
        stop = self._stop_block()
        self._open = type(block)
        self._num_blocks += 1
        return stop + _encode(BlockStart(self._num_blocks - 1, block))

    def _stop_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _encode(BlockStop(self._num_blocks - 1))

    def _delta(self, delta: TextDelta | InputJsonDelta) -> bytes:
        return _encode(BlockDelta(self._num_blocks - 1, delta))


def count_tokens(chat: ChatEndpoint) -> Callable[[ChatCall, ServedModel], TokenCount]:
    """Return what answers `/v1/messages/count_tokens` on the tokenising thread; it raises RequestError."""

    def count(call: ChatCall, served: ServedModel) -> TokenCount:
        (ids,) = chat.tokenise(call, served, served.engine.info)
        return TokenCount(len(ids))

    return count


def _end(reason: FinishReason, stop: str | None) -> MessageEnd:
    if reason == "stop" and stop is not None:
        return MessageEnd("stop_sequence", stop)
    return MessageEnd(_REASONS[reason], None)


def _tool_use(call: CollectedCall) -> ToolUseBlock:
    """A call that was cut off has arguments that are no JSON yet; the API has no way to show them but as none."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    return ToolUseBlock(id=call.id, name=call.name, input=arguments)


def _encode(event: StreamEvent) -> bytes:
    name = type(event).__struct_config__.tag
    assert isinstance(name, str)
    return sse.event(event, name)
