"""Chat completions: conversation to token ids, text events to OpenAI's chat responses.

With tools the model's answer is parsed for calls; with `tool_choice` "none" it neither sees the tools nor is parsed.
"""

from collections.abc import Sequence

from msgspec import UNSET

from headway.core.errors import HeadwayError, InvalidRequest
from headway.core.messages import EngineInfo, Usage
from headway.core.request import Grammar
from headway.gateway.answer import Answer, AnswerHead, CollectedChoice, TokenBytes, token_text
from headway.gateway.call_ids import call_ids
from headway.gateway.config import GatewayConfig
from headway.gateway.served import ServedModel, TextMaker, Tokenizer, encode
from headway.gateway.text_events import (
    ChoiceEnd,
    Piece,
    ScoredToken,
    TextEvent,
    ToolCallArguments,
    ToolCallStart,
)
from headway.gateway.tool_grammar import tools_grammar
from headway.gateway.tool_parser import ToolParser
from headway.gateway.tool_prompt import render
from headway.gateway.tool_support import ToolSupport
from headway.gateway.tool_xml_reader import parameter_types
from headway.wire import sse
from headway.wire.chat_request import ChatCall, parse_chat
from headway.wire.chat_response import (
    AnswerMessage,
    AnswerToolCall,
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    ContentLogprob,
    Delta,
    FunctionDelta,
    ToolCallDelta,
    TopLogprob,
)
from headway.wire.errors import error_event
from headway.wire.usage import usage_fields


class ChatEndpoint:
    """What is special about `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    prompt_param = "messages"

    def parse(self, body: bytes) -> ChatCall:
        """Parse a request's body; raises InvalidRequest."""
        return parse_chat(body)

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit of an answer when the request names none."""
        return config.default_chat_max_tokens

    def tokenise(self, call: ChatCall, served: ServedModel, info: EngineInfo) -> tuple[tuple[int, ...], ...]:
        """Return the one prompt's token ids (runs on the tokenising thread); raises RequestError."""
        if served.chat_template is None:
            raise InvalidRequest(
                f"The model `{served.name}` has no chat template; use /v1/completions.", param="model"
            )
        tools = call.tools if tool_support(call, served) is not None else ()
        prompt = render(served.chat_template, call.messages, tools, served.tool_support, call.template_kwargs)
        return (encode(prompt, served.tokenizer, info, self.prompt_param),)

    def grammar(self, call: ChatCall, served: ServedModel) -> Grammar | None:
        """Return what every answer must match; raises InvalidRequest."""
        support = tool_support(call, served)
        return call.options.grammar if support is None else tools_grammar(call, support)

    def text_maker(self, call: ChatCall, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text for each choice, which finds the calls if there are tools."""
        support = tool_support(call, served)
        if support is None:
            return served.text_maker(call.options.stop)
        functions = {tool.name: parameter_types(tool.parameters) for tool in call.tools}
        max_calls = None if call.parallel_tool_calls else 1

        def new_tools(choice: int) -> ToolParser:
            return ToolParser(choice, support.syntax, functions, call_ids(call_key, choice), max_calls)

        return served.text_maker(call.options.stop, new_tools)

    def answer(self, call: ChatCall, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        return ChatAnswer(
            head, tokenizer.token_bytes, logprobs=call.options.sampling.num_logprobs is not None
        )


def tool_support(call: ChatCall, served: ServedModel) -> ToolSupport | None:
    """Return how the model takes the call's tools; None if tools are not in play, as `tool_choice` "none" asks.

    Raises InvalidRequest if there are tools and the model takes none.
    """
    if call.tool_choice.mode == "none":
        return None
    if served.tool_support is None:
        raise InvalidRequest(
            f"The model `{served.name}` takes no tools: its chat template has no place for them, or its way of "
            "writing calls is not supported; leave `tools` out.",
            param="tools",
        )
    return served.tool_support


class ChatAnswer:
    """Writes chat responses. Each choice's first chunk carries the role."""

    def __init__(self, head: AnswerHead, token_bytes: TokenBytes, *, logprobs: bool) -> None:
        self._head = head
        self._token_bytes = token_bytes
        self._logprobs = logprobs
        self._opened: set[int] = set()
        self._pieces: dict[int, sse.TextEvents] = {}  # choice → its chunks of text

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode what came, one chunk each; the role goes before a choice's first."""
        parts: list[bytes] = []
        for event in events:
            if event.choice not in self._opened:
                self._opened.add(event.choice)
                content = None if isinstance(event, ToolCallStart) else ""
                opening = Delta(role="assistant", content=content, refusal=None)
                parts.append(self._chunk([ChunkChoice(index=event.choice, delta=opening)]))
            if isinstance(event, Piece) and not self._logprobs:
                parts.append(self._piece(event))
            else:
                parts.append(self._chunk([self._chunk_choice(event)]))
        return b"".join(parts)

    def stream_end(self, usage: Usage) -> bytes:
        """Encode the last chunk, which has no choices, if it was asked for, and the end."""
        return (self._chunk([], usage) if self._head.include_usage else b"") + sse.DONE

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode an error; nothing follows it."""
        return error_event(error)

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> ChatCompletion:
        """Build the response's body."""
        return ChatCompletion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=[
                ChatChoice(
                    index=index,
                    message=_message(choice),
                    logprobs=self._logprob_fields(choice.scored),
                    finish_reason=choice.reason,
                )
                for index, choice in enumerate(choices)
            ],
            usage=usage_fields(usage),
            system_fingerprint=self._head.system_fingerprint,
        )

    def _chunk_choice(self, event: TextEvent) -> ChunkChoice:
        match event:
            case Piece():
                return ChunkChoice(
                    index=event.choice,
                    delta=Delta(content=event.text),
                    logprobs=self._logprob_fields(event.scored),
                )
            case ToolCallStart():
                function = FunctionDelta(name=event.name, arguments="")
                call = ToolCallDelta(index=event.index, id=event.id, type="function", function=function)
                return ChunkChoice(index=event.choice, delta=Delta(tool_calls=[call]))
            case ToolCallArguments():
                call = ToolCallDelta(index=event.index, function=FunctionDelta(arguments=event.text))
                return ChunkChoice(index=event.choice, delta=Delta(tool_calls=[call]))
            case ChoiceEnd():
                return ChunkChoice(
                    index=event.choice,
                    delta=Delta(),
                    logprobs=self._logprob_fields(event.scored) if event.scored else None,
                    finish_reason=event.reason,
                )

    def _piece(self, piece: Piece) -> bytes:
        """Encode text alone, which nearly every event is."""
        chunks = self._pieces.get(piece.choice)
        if chunks is None:
            blank = self._chunk_choice(Piece(piece.choice, sse.TextEvents.BLANK))
            chunks = self._pieces[piece.choice] = sse.TextEvents(self._chunk([blank]))
        return chunks.event(piece.text)

    def _chunk(self, choices: list[ChunkChoice], usage: Usage | None = None) -> bytes:
        last = None if usage is None else usage_fields(usage)
        return sse.event(
            ChatChunk(
                id=self._head.id,
                created=self._head.created_s,
                model=self._head.model,
                choices=choices,
                usage=last if self._head.include_usage else UNSET,
                system_fingerprint=self._head.system_fingerprint,
            )
        )

    def _logprob_fields(self, scored: Sequence[ScoredToken]) -> ChatLogprobs | None:
        if not self._logprobs:
            return None
        return ChatLogprobs(
            [
                ContentLogprob(
                    *self._token(token.logprobs.token_id, token.logprobs.logprob),
                    [TopLogprob(*self._token(*top)) for top in token.logprobs.top],
                )
                for token in scored
            ]
        )

    def _token(self, token_id: int, logprob: float) -> tuple[str, float, list[int]]:
        token = self._token_bytes(token_id)
        return token_text(token), logprob, list(token)


def _message(choice: CollectedChoice) -> AnswerMessage:
    if not choice.calls:
        return AnswerMessage(content=choice.text)
    return AnswerMessage(
        content=choice.text or None,
        tool_calls=[
            AnswerToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))
            for call in choice.calls
        ],
    )
