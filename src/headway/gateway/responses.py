"""OpenAI's Responses API on top of chat: the same prompts, grammars and events, written as items of a response."""

from collections.abc import Callable, Sequence
from typing import Literal

from headway.core.errors import HeadwayError
from headway.core.messages import EngineInfo, Usage
from headway.core.request import Grammar
from headway.gateway.answer import Answer, AnswerHead, CollectedChoice
from headway.gateway.chat import ChatEndpoint
from headway.gateway.config import GatewayConfig
from headway.gateway.served import ServedModel, TextMaker, Tokenizer
from headway.gateway.text_events import ChoiceEnd, Piece, TextEvent, ToolCallArguments, ToolCallStart
from headway.wire import sse
from headway.wire.responses_request import Echo, ResponsesCall, parse_responses
from headway.wire.responses_response import (
    ArgumentsDelta,
    ArgumentsDone,
    FunctionCall,
    IncompleteDetails,
    Item,
    ItemAdded,
    ItemDone,
    ItemStatus,
    OutputMessage,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    PartAdded,
    PartDone,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseFailure,
    ResponseIncomplete,
    ResponseInProgress,
    TextConfig,
    response_usage,
)

_Status = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponsesEndpoint:
    """What is special about `/v1/responses`: the shapes. Everything else is chat's."""

    id_prefix = "resp_"
    prompt_param = "input"

    def __init__(self, chat: ChatEndpoint) -> None:
        self._chat = chat

    def parse(self, body: bytes) -> ResponsesCall:
        """Parse a request's body; raises InvalidRequest."""
        return parse_responses(body)

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit of an answer when the request names none."""
        return self._chat.default_max_tokens(config)

    def tokenise(
        self, call: ResponsesCall, served: ServedModel, info: EngineInfo
    ) -> tuple[tuple[int, ...], ...]:
        """Return the one prompt's token ids (runs on the tokenising thread); raises RequestError."""
        return self._chat.tokenise(call.chat, served, info)

    def grammar(self, call: ResponsesCall, served: ServedModel) -> Grammar | None:
        """Return what the answer must match; raises InvalidRequest."""
        return self._chat.grammar(call.chat, served)

    def text_maker(self, call: ResponsesCall, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text."""
        return self._chat.text_maker(call.chat, served, call_key)

    def answer(self, call: ResponsesCall, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        del tokenizer
        return ResponseAnswer(head, call.echo)


class ResponseAnswer:
    """Writes the one answer of a call. Items come one after the other, text and calls as they alternate."""

    def __init__(self, head: AnswerHead, echo: Echo) -> None:
        self._head = head
        self._echo = echo
        self._sequence_number = 0
        self._items: list[Item] = []
        self._open: Item | None = None
        self._parts: list[str] = []  # of the open item's text or arguments
        self._status: Literal["completed", "incomplete"] = "completed"

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode what a step brought."""
        found = self._begin()
        for event in events:
            match event:
                case Piece():
                    if not isinstance(self._open, OutputMessage):
                        found += self._close() + self._open_message()
                    found += self._add(event.text, self._text_delta)
                case ToolCallStart():
                    found += self._close() + self._open_call(event)
                case ToolCallArguments():
                    found += self._add(event.text, self._arguments_delta)
                case ChoiceEnd():
                    self._status = "incomplete" if event.reason == "length" else "completed"
                    if self._open is None and not self._items:
                        found += self._open_message()  # of no text, as in a response that is sent whole
                    found += self._close(self._status)
        return found

    def stream_end(self, usage: Usage) -> bytes:
        """Encode the whole response, which ends the stream."""
        ending = ResponseCompleted if self._status == "completed" else ResponseIncomplete
        response = self._response(self._status, self._items, usage)
        return self._begin() + self._encode(ending(sequence_number=self._sequence_number, response=response))

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode the response that failed; nothing follows it."""
        failure = ResponseFailure(error.code, error.message)
        response = self._response("failed", self._items, None, failure)
        return self._begin() + self._encode(
            ResponseFailed(sequence_number=self._sequence_number, response=response)
        )

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> Response:
        """Build the response's body."""
        (choice,) = choices
        status: Literal["completed", "incomplete"] = (
            "incomplete" if choice.reason == "length" else "completed"
        )
        items: list[Item] = []
        if choice.text or not choice.calls:
            items.append(_message(self._item_id("msg", 0), choice.text, status))
        for call in choice.calls:
            items.append(
                FunctionCall(
                    id=self._item_id("fc", len(items)),
                    call_id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    status="completed",
                )
            )
        return self._response(status, items, usage)

    def _begin(self) -> bytes:
        if self._sequence_number:
            return b""
        response = self._response("in_progress", [], None)
        return self._encode(ResponseCreated(sequence_number=0, response=response)) + self._encode(
            ResponseInProgress(sequence_number=1, response=response)
        )

    def _open_message(self) -> bytes:
        index = len(self._items)
        item = OutputMessage(id=self._item_id("msg", index), status="in_progress", content=[])
        self._open = item
        return self._encode(
            ItemAdded(sequence_number=self._sequence_number, output_index=index, item=item)
        ) + self._encode(
            PartAdded(
                sequence_number=self._sequence_number,
                item_id=item.id,
                output_index=index,
                part=OutputText(text=""),
            )
        )

    def _open_call(self, event: ToolCallStart) -> bytes:
        index = len(self._items)
        item = FunctionCall(
            id=self._item_id("fc", index),
            call_id=event.id,
            name=event.name,
            arguments="",
            status="in_progress",
        )
        self._open = item
        return self._encode(ItemAdded(sequence_number=self._sequence_number, output_index=index, item=item))

    def _add(self, text: str, delta: Callable[[str, str], ResponseEvent]) -> bytes:
        assert self._open is not None, "an item is open"
        self._parts.append(text)
        return self._encode(delta(self._open.id, text))

    def _text_delta(self, item_id: str, text: str) -> ResponseEvent:
        return OutputTextDelta(
            sequence_number=self._sequence_number,
            item_id=item_id,
            output_index=len(self._items),
            delta=text,
        )

    def _arguments_delta(self, item_id: str, text: str) -> ResponseEvent:
        return ArgumentsDelta(
            sequence_number=self._sequence_number,
            item_id=item_id,
            output_index=len(self._items),
            delta=text,
        )

    def _close(self, status: ItemStatus = "completed") -> bytes:
        """End the open item, if any."""
        item, text, index = self._open, "".join(self._parts), len(self._items)
        self._open = None
        self._parts.clear()
        match item:
            case None:
                return b""
            case OutputMessage():
                done: Item = _message(item.id, text, status)
                found = self._encode(
                    OutputTextDone(
                        sequence_number=self._sequence_number,
                        item_id=item.id,
                        output_index=index,
                        text=text,
                    )
                )
                found += self._encode(
                    PartDone(
                        sequence_number=self._sequence_number,
                        item_id=item.id,
                        output_index=index,
                        part=OutputText(text=text),
                    )
                )
            case FunctionCall():
                done = FunctionCall(
                    id=item.id, call_id=item.call_id, name=item.name, arguments=text, status=status
                )
                found = self._encode(
                    ArgumentsDone(
                        sequence_number=self._sequence_number,
                        item_id=item.id,
                        output_index=index,
                        name=item.name,
                        arguments=text,
                    )
                )
        self._items.append(done)
        return found + self._encode(
            ItemDone(sequence_number=self._sequence_number, output_index=index, item=done)
        )

    def _response(
        self,
        status: _Status,
        items: list[Item],
        usage: Usage | None,
        failure: ResponseFailure | None = None,
    ) -> Response:
        echo = self._echo
        return Response(
            id=self._head.id,
            created_at=self._head.created_s,
            status=status,
            error=failure,
            incomplete_details=IncompleteDetails("max_output_tokens") if status == "incomplete" else None,
            instructions=echo.instructions,
            max_output_tokens=echo.max_output_tokens,
            model=self._head.model,
            output=items,
            parallel_tool_calls=echo.parallel_tool_calls,
            temperature=echo.temperature,
            text=TextConfig(echo.format),
            tool_choice=echo.tool_choice,
            tools=echo.tools,
            top_p=echo.top_p,
            usage=None if usage is None else response_usage(usage),
        )

    def _item_id(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self._head.id.removeprefix('resp_')}_{index}"

    def _encode(self, event: ResponseEvent) -> bytes:
        self._sequence_number += 1
        name = type(event).__struct_config__.tag
        assert isinstance(name, str)
        return sse.event(event, name)


def _message(item_id: str, text: str, status: ItemStatus) -> OutputMessage:
    return OutputMessage(id=item_id, status=status, content=[OutputText(text=text)])
