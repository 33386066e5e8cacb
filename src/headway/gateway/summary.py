"""`/v1/summary`: a conversation in one line, made on the prefix that its chat has left in the cache. The rest is chat's."""

from collections.abc import Sequence
from typing import Final

from headway.core.errors import HeadwayError
from headway.core.messages import EngineInfo, Usage
from headway.core.request import Grammar, ServiceClass
from headway.gateway.answer import Answer, AnswerHead, CollectedChoice
from headway.gateway.chat import ChatEndpoint
from headway.gateway.config import GatewayConfig
from headway.gateway.served import ServedModel, TextMaker, Tokenizer
from headway.gateway.text_events import TextEvent
from headway.wire import sse
from headway.wire.chat_request import ChatCall
from headway.wire.errors import error_event
from headway.wire.summary import MAX_SUMMARY_TOKENS, cut_summary
from headway.wire.summary_request import Summary, parse_summary
from headway.wire.usage import usage_fields

SUMMARY_CLASS: Final[ServiceClass] = "low"
"""It is made while the user reads the answer; nobody's next token should wait for it."""


class SummaryEndpoint:
    """What is special about it: what is asked, in which class, and that a line comes of the answer."""

    id_prefix = "summary-"
    prompt_param = "messages"

    def __init__(self, chat: ChatEndpoint) -> None:
        self._chat = chat

    def parse(self, body: bytes) -> ChatCall:
        """Parse a request's body; raises InvalidRequest."""
        return parse_summary(body)

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit of an answer, which every call names."""
        del config
        return MAX_SUMMARY_TOKENS

    def tokenise(self, call: ChatCall, served: ServedModel, info: EngineInfo) -> tuple[tuple[int, ...], ...]:
        """Return the one prompt's token ids (runs on the tokenising thread); raises RequestError."""
        return self._chat.tokenise(call, served, info)

    def grammar(self, call: ChatCall, served: ServedModel) -> Grammar | None:
        """Return what the answer must match: nothing, of a parsed summary."""
        return self._chat.grammar(call, served)

    def text_maker(self, call: ChatCall, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text, which keeps calls apart from it, should the model make any."""
        return self._chat.text_maker(call, served, call_key)

    def answer(self, call: ChatCall, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        del call, tokenizer
        return SummaryAnswer(head)


class SummaryAnswer:
    """Writes the response. It is never streamed, as its text is cut when it is whole."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode nothing: there are no parts."""
        del events
        return b""

    def stream_end(self, usage: Usage) -> bytes:
        """Encode the end."""
        del usage
        return sse.DONE

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode an error; nothing follows it."""
        return error_event(error)

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> Summary:
        """Build the response's body."""
        (choice,) = choices
        return Summary(model=self._head.model, summary=cut_summary(choice.text), usage=usage_fields(usage))
