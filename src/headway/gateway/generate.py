"""One generating call from the socket to the last byte: read, parse, admit, tokenise, submit, answer.

What differs between chat and text completions is in `chat` and `completions`; this walk is the same for both.
"""

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from headway.core.errors import HeadwayError
from headway.core.messages import EngineInfo
from headway.core.request import Grammar, Request, ServiceClass
from headway.gateway import admission
from headway.gateway.answer import Answer, AnswerHead, CollectedChoice, collect
from headway.gateway.call_ids import new_call_key
from headway.gateway.choices import Choices
from headway.gateway.client_watch import ClientGone, ClientWatch
from headway.gateway.conduct import NamedCall, OpenCall, admitted, conduct
from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway
from headway.gateway.generation import Generation
from headway.gateway.request_record import CLIENT_CLOSED_STATUS
from headway.gateway.response import Responder, SlowReader
from headway.gateway.served import ServedModel, TextMaker, Tokenizer
from headway.gateway.stored_call import StoredCall, encode_call
from headway.gateway.stream_answer import send_first
from headway.wire.options import GenerationOptions


class GeneratingCall(NamedCall, Protocol):
    """What every generating call has."""

    @property
    def options(self) -> GenerationOptions:
        """How to generate."""
        ...


C = TypeVar("C", bound=GeneratingCall)


class Endpoint(Protocol[C]):
    """What differs between endpoints that generate."""

    id_prefix: str
    prompt_param: str

    def parse(self, body: bytes) -> C:
        """Parse a request's body; raises InvalidRequest."""
        ...

    def default_max_tokens(self, config: GatewayConfig) -> int:
        """Return the limit per choice when the request names none."""
        ...

    def tokenise(self, call: C, served: ServedModel, info: EngineInfo) -> tuple[tuple[int, ...], ...]:
        """Return every prompt's token ids; runs on the tokenising thread; raises RequestError."""
        ...

    def grammar(self, call: C, served: ServedModel) -> Grammar | None:
        """Return what every answer must match, None for free text; raises InvalidRequest."""
        ...

    def text_maker(self, call: C, served: ServedModel, call_key: bytes) -> TextMaker:
        """Return what makes an empty text for each choice, its tool calls named by `call_key` (`call_ids`)."""
        ...

    def answer(self, call: C, head: AnswerHead, tokenizer: Tokenizer) -> Answer:
        """Return the writer of the response."""
        ...


class Generate(Generic[C]):
    """The ASGI application of a generating endpoint.

    service_class   of every call, whatever its headers ask for; None = as they have it
    """

    def __init__(
        self, gateway: Gateway, endpoint: Endpoint[C], *, service_class: ServiceClass | None = None
    ) -> None:
        self._gateway = gateway
        self._endpoint = endpoint
        self._service_class = service_class

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; raises the HeadwayError that ended it, which a stream that began has told already."""
        await conduct(
            self._gateway,
            scope,
            receive,
            send,
            self._endpoint.parse,
            self._serve,
            service_class=self._service_class,
        )

    async def _serve(self, open_call: OpenCall[C]) -> None:
        gateway, call, served = self._gateway, open_call.call, open_call.served
        record, client, responder = open_call.record, open_call.client, open_call.responder
        info = admitted(gateway, served)
        admission.check_against_model(call.options, info)
        grammar = self._endpoint.grammar(call, served)
        job = partial(self._endpoint.tokenise, call, served, info)
        prompts = await client.race(
            gateway.prompt_worker.submit_nowait(job, open_call.num_bytes, open_call.caller)
        )
        head = AnswerHead(
            id=self._endpoint.id_prefix + record.request_id,
            created_s=int(gateway.wall_time_s()),
            model=served.name,
            system_fingerprint=info.system_fingerprint,
            include_usage=call.options.include_usage,
            num_prompt_tokens=sum(map(len, prompts)),
        )
        answer = self._endpoint.answer(call, head, served.tokenizer)
        responder.error_event = answer.stream_error
        requests = self._requests(open_call, prompts, grammar, info)
        await open_call.limited.reserve(sum(len(one.token_ids) + one.n * one.max_tokens for one in requests))
        call_key = new_call_key()
        generation = Generation(
            engine=served.engine,
            choices=Choices(requests, self._endpoint.text_maker(call, served, call_key)),
            record=record,
            survives=True,
        )
        if call.options.stream and open_call.resumable and gateway.streams is not None:
            streams = gateway.streams
            meta = _meta(open_call, head, requests, call_key) if streams.terms.keeps_steps else b""
            owner = open_call.caller.token_id
            run, done = streams.start(owner, generation, answer, record, open_call.limited, meta)
            gateway.hold_active(done)
            await send_first(streams, run, client, responder)
            if responder.complete:  # it ends this very moment, and then the access line tells how
                await asyncio.wait({done})
            return
        try:
            async with generation:
                client.on_gone(generation.cancel)
                if call.options.stream:
                    await _stream(generation, answer, client, responder)
                else:
                    await _whole(generation, answer, client, responder, len(prompts) * call.options.n)
        except SlowReader:
            record.end("cancelled", status=200, usage=generation.usage, error_code="slow_reader")
            raise
        except HeadwayError as error:
            record.end_with_error(error, generation.usage)
            if responder.started:
                await responder.error(error)
            raise
        finally:
            open_call.limited.use(record.num_used(generation.usage))
        if client.gone and not responder.complete:
            record.end("cancelled", status=CLIENT_CLOSED_STATUS, usage=generation.usage)
            raise ClientGone
        record.end(generation.outcome, status=200, usage=generation.usage)

    def _requests(
        self,
        open_call: OpenCall[C],
        prompts: Sequence[tuple[int, ...]],
        grammar: Grammar | None,
        info: EngineInfo,
    ) -> list[Request]:
        """Build the engine's requests, one per prompt; raises ContextExceeded."""
        options, served, record = open_call.call.options, open_call.served, open_call.record
        config = self._gateway.config
        default = self._endpoint.default_max_tokens(config)
        stop_token_ids = options.stop_token_ids
        if not options.ignore_eos:
            stop_token_ids = tuple(sorted({*served.tokenizer.eos_ids, *stop_token_ids}))
        requests = [
            Request(
                request_id=f"{record.request_id}-{index}",
                token_ids=token_ids,
                sampling=msgspec.structs.replace(
                    options.sampling,
                    seed=secrets.randbits(64) if options.seed is None else options.seed,
                ),
                max_tokens=admission.resolve_max_tokens(
                    len(token_ids),
                    options.max_tokens,
                    default,
                    info,
                    prompt_param=self._endpoint.prompt_param,
                ),
                n=options.n,
                stop_token_ids=stop_token_ids,
                grammar=grammar,
                arrival_ns=record.arrival_ns,
            )
            for index, token_ids in enumerate(prompts)
        ]
        return [
            admission.on_terms(request, open_call.terms, share_prefixes=config.share_prefixes)
            for request in requests
        ]


def _meta(open_call: OpenCall[C], head: AnswerHead, requests: Sequence[Request], call_key: bytes) -> bytes:
    """Return all that another process needs to go on with a call."""
    return encode_call(
        StoredCall(
            endpoint=open_call.path,
            body=open_call.body,
            head=head,
            requests=tuple(requests),
            call_key=call_key,
            terms=open_call.terms,
            caller=open_call.caller,
        )
    )


async def _stream(generation: Generation, answer: Answer, client: ClientWatch, responder: Responder) -> None:
    """Send events as steps bring them; the status goes out with the first step, so that refusals keep theirs."""
    async for events in generation.events():
        if client.gone:
            continue
        data = answer.stream(events)
        if generation.is_done:  # what ends the stream leaves in the same write
            await responder.stream_end(data + answer.stream_end(generation.usage))
        else:
            await responder.stream(data)
    if not client.gone and not responder.complete:
        await responder.stream_end(answer.stream_end(generation.usage))


async def _whole(
    generation: Generation, answer: Answer, client: ClientWatch, responder: Responder, num_choices: int
) -> None:
    choices = [CollectedChoice() for _ in range(num_choices)]
    async for events in generation.events():
        collect(choices, events)
    if not client.gone:
        await responder.json(200, answer.whole(choices, generation.usage))
