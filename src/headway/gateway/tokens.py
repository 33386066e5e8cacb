"""`/tokenize` and `/detokenize`: they cost the engine nothing, so they only queue for the tokenising thread."""

from collections.abc import Callable
from functools import partial
from typing import Generic

from starlette.types import Receive, Scope, Send

from headway.core.caller import NOBODY
from headway.core.errors import InvalidRequest
from headway.gateway.admission import check_token_ids
from headway.gateway.client_watch import ClientWatch
from headway.gateway.conduct import C, read_call
from headway.gateway.gateway import Gateway
from headway.gateway.request_info import request_info
from headway.gateway.response import Responder
from headway.gateway.served import ServedModel, find_model
from headway.gateway.tool_prompt import render
from headway.wire.tokens import DetokenizeCall, Detokenized, TokenizeCall, Tokenized


class TokenService(Generic[C]):
    """The ASGI application of an endpoint that `answer` computes on the tokenising thread."""

    def __init__(
        self, gateway: Gateway, parse: Callable[[bytes], C], answer: Callable[[C, ServedModel], object]
    ) -> None:
        self._gateway = gateway
        self._parse = parse
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; raises the HeadwayError that ended it."""
        gateway = self._gateway
        call, num_bytes = await read_call(gateway, scope, receive, self._parse)
        job = partial(self._answer, call, find_model(gateway.models, call.model))
        caller = request_info(scope).caller or NOBODY
        async with ClientWatch(receive) as client:
            answer = await client.race(gateway.prompt_worker.submit_nowait(job, num_bytes, caller))
            await Responder(send, timeout_s=gateway.config.slow_reader_timeout_s).json(200, answer)


def tokenized(call: TokenizeCall, served: ServedModel) -> Tokenized:
    """Return the ids of a text or of a rendered conversation; raises RequestError."""
    if call.text is not None:
        ids = list(served.tokenizer.encode(call.text, add_bos=call.add_special_tokens))
    elif served.chat_template is None:
        raise InvalidRequest(f"The model `{served.name}` has no chat template; send `prompt`.", param="model")
    else:
        text = render(served.chat_template, call.messages, (), served.tool_support)
        ids = list(served.tokenizer.encode(text))
    strings = None
    if call.return_token_strs:
        strings = [served.tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in ids]
    return Tokenized(
        count=len(ids), max_model_len=served.engine.info.max_context, tokens=ids, token_strs=strings
    )


def detokenized(call: DetokenizeCall, served: ServedModel) -> Detokenized:
    """Return the text of ids; raises InvalidRequest for ids that are not in the vocabulary."""
    check_token_ids(call.tokens, served.engine.info.vocab_size, "tokens")
    return Detokenized(prompt=served.tokenizer.decode(call.tokens, skip_special=False))
