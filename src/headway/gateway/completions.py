"""Text completions: prompts to token ids, text events to OpenAI's legacy completion responses."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from headway.core.errors import HeadwayError, InvalidRequest
from headway.core.messages import EngineInfo, Usage
from headway.core.request import Grammar
from headway.gateway.admission import check_min_length, check_token_ids
from headway.gateway.answer import Answer, AnswerHead, CollectedChoice, TokenBytes, token_text
from headway.gateway.config import GatewayConfig
from headway.gateway.fim import fill_in_prompt
from headway.gateway.served import ServedModel, TextMaker, Tokenizer, encode
from headway.gateway.text_events import ChoiceEnd, Piece, ScoredToken, TextEvent
from headway.models.text_side import FimTokens
from headway.wire import sse
from headway.wire.completion_request import CompletionCall, parse_completion
from headway.wire.completion_response import Completion, CompletionChoice, CompletionLogprobs
from headway.wire.errors import error_event
from headway.wire.usage import UsageFields, usage_fields


class CompletionEndpoint:
    """What is special about `/v1/completions`."""

    id_prefix = "cmpl-"
    prompt_param = "prompt"

    def parse(self, body: bytes) -> CompletionCall:
        """Parse a request's body; raises InvalidRequest."""
        return parse_completion(body)

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit of a completion when the request names none."""
        return config.default_completion_max_tokens

    def tokenise(
        self, call: CompletionCall, served: ServedModel, info: EngineInfo
    ) -> tuple[tuple[int, ...], ...]:
        """Return every prompt's token ids (runs on the tokenising thread); raises RequestError."""
        fim = _fim(call, served)
        prompts: list[tuple[int, ...]] = []
        for prompt in call.prompts:
            if isinstance(prompt, str) and fim is not None:
                prompts.append(
                    fill_in_prompt(prompt, call.suffix, fim, served.tokenizer, info, self.prompt_param)
                )
            elif isinstance(prompt, str):
                prompts.append(encode(prompt, served.tokenizer, info, self.prompt_param))
            else:
                check_min_length(len(prompt), info.max_context, self.prompt_param)
                check_token_ids(prompt, info.vocab_size, self.prompt_param)
                prompts.append(prompt)
        return tuple(prompts)

    def grammar(self, call: CompletionCall, served: ServedModel) -> Grammar | None:
        """Return what every answer must match; raises InvalidRequest."""
        del served
        return call.options.grammar

    def text_maker(self, call: CompletionCall, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text for each choice."""
        del call_key  # only chats have tools
        return served.text_maker(call.options.stop, tells_ids=call.return_token_ids)

    def answer(self, call: CompletionCall, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        echoes = [
            prompt if isinstance(prompt, str) else tokenizer.decode(prompt, skip_special=False)
            for prompt in call.prompts
            if call.echo
        ] or [""] * len(call.prompts)
        options = call.options
        return CompletionAnswer(
            head,
            tokenizer.token_bytes,
            num_logprobs=options.sampling.num_logprobs,
            echoes=[echo for echo in echoes for _ in range(options.n)],
            tells_ids=call.return_token_ids,
            names_ids=call.return_tokens_as_token_ids,
        )


def _fim(call: CompletionCall, served: ServedModel) -> FimTokens | None:
    """Return what makes the model fill in, None if it is not asked to; raises InvalidRequest if it cannot."""
    if not call.suffix:
        return None
    if served.fim is None:
        raise InvalidRequest(
            f"The model `{served.name}` has no tokens for filling in the middle; leave `suffix` out.",
            param="suffix",
        )
    return served.fim


class CompletionAnswer:
    """Writes completion responses.

    echoes      what each choice's text begins with, "" for nothing
    tells_ids   whether choices bring token ids
    names_ids   whether log-probabilities name tokens by their ids
    """

    def __init__(
        self,
        head: AnswerHead,
        token_bytes: TokenBytes,
        *,
        num_logprobs: int | None,
        echoes: Sequence[str],
        tells_ids: bool = False,
        names_ids: bool = False,
    ) -> None:
        self._head = head
        self._token_bytes = token_bytes
        self._num_logprobs = num_logprobs
        self._echoes = dict(enumerate(echoes))
        self._tells_ids = tells_ids
        self._names_ids = names_ids

    def stream(self, events: Sequence[TextEvent]) -> bytes:
        """Encode text and ends, one event each."""
        parts: list[bytes] = []
        for event in events:
            assert isinstance(event, Piece | ChoiceEnd), "only chats have tools"
            is_text = isinstance(event, Piece)
            choice = CompletionChoice(
                index=event.choice,
                text=self._echoes.pop(event.choice, "") + (event.text if isinstance(event, Piece) else ""),
                logprobs=self._logprob_fields(event.scored) if is_text or event.scored else None,
                finish_reason=None if isinstance(event, Piece) else event.reason,
                token_ids=list(event.token_ids) if self._tells_ids else UNSET,
            )
            parts.append(sse.event(self._body([choice], None if self._head.include_usage else UNSET)))
        return b"".join(parts)

    def stream_end(self, usage: Usage) -> bytes:
        """Encode the last event, which has no choices, if it was asked for, and the end."""
        last = sse.event(self._body([], usage_fields(usage))) if self._head.include_usage else b""
        return last + sse.DONE

    def stream_error(self, error: HeadwayError) -> bytes:
        """Encode an error; nothing follows it."""
        return error_event(error)

    def whole(self, choices: Sequence[CollectedChoice], usage: Usage) -> Completion:
        """Build the response's body."""
        return self._body(
            [
                CompletionChoice(
                    index=index,
                    text=self._echoes[index] + choice.text,
                    logprobs=self._logprob_fields(choice.scored),
                    finish_reason=choice.reason,
                    token_ids=choice.token_ids if self._tells_ids else UNSET,
                )
                for index, choice in enumerate(choices)
            ],
            usage_fields(usage),
        )

    def _body(self, choices: list[CompletionChoice], usage: UsageFields | UnsetType | None) -> Completion:
        return Completion(
            id=self._head.id,
            created=self._head.created_s,
            model=self._head.model,
            choices=choices,
            usage=usage,
            system_fingerprint=self._head.system_fingerprint,
        )

    def _logprob_fields(self, scored: Sequence[ScoredToken]) -> CompletionLogprobs | None:
        if self._num_logprobs is None:
            return None
        tops = [{self._text(top): logprob for top, logprob in token.logprobs.top} for token in scored]
        return CompletionLogprobs(
            tokens=[self._text(token.logprobs.token_id) for token in scored],
            token_logprobs=[token.logprobs.logprob for token in scored],
            top_logprobs=tops if self._num_logprobs else None,
            text_offset=[token.start for token in scored],
        )

    def _text(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._names_ids else token_text(self._token_bytes(token_id))
