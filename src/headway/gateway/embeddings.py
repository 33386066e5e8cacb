"""`/v1/embeddings`: texts to vectors, each an engine request of its own that generates nothing.

A call's texts share the engine's queue with everything else, so only some of them are in it at a time: a call with 2,048
texts neither fills the queue nor is refused for its length.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from starlette.types import Receive, Scope, Send

from headway.core.errors import InternalError, InvalidRequest
from headway.core.messages import EngineInfo, Finished, Usage
from headway.core.request import Pooling, Request
from headway.core.sampling import SamplingParams
from headway.engine.client import EngineClient
from headway.gateway.admission import check_min_length, check_token_ids, on_terms
from headway.gateway.client_watch import ClientGone
from headway.gateway.conduct import OpenCall, admitted, conduct
from headway.gateway.gateway import Gateway
from headway.gateway.request_record import RequestRecord
from headway.gateway.served import ServedModel, encode
from headway.wire.embeddings import EmbeddingCall, embedding_list, parse_embedding

_MAX_IN_ENGINE: Final = 32
"""Texts of one call: enough to fill steps with short ones, a thirty-second part of the queue's default length."""

_PARAM: Final = "input"


class Embeddings:
    """The ASGI application of the endpoint."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; raises the HeadwayError that ended it."""
        await conduct(self._gateway, scope, receive, send, parse_embedding, self._serve)

    async def _serve(self, open_call: OpenCall[EmbeddingCall]) -> None:
        call, served, client = open_call.call, open_call.served, open_call.client
        info = admitted(self._gateway, served)
        if served.pooling is None:
            raise InvalidRequest(
                f"The files of the model `{served.name}` name no pooling, so it makes no embeddings; "
                "the server's option --pooling would give it one.",
                param="model",
            )
        job = partial(_tokenise, call, served, info)
        texts = await client.race(
            self._gateway.prompt_worker.submit_nowait(job, open_call.num_bytes, open_call.caller)
        )
        requests = [_request(ids, index, served.pooling, open_call.record) for index, ids in enumerate(texts)]
        share_prefixes = self._gateway.config.share_prefixes
        requests = [on_terms(one, open_call.terms, share_prefixes=share_prefixes) for one in requests]
        await open_call.limited.reserve(sum(map(len, texts)))
        open_call.record.note_submitted()
        ends: dict[int, Finished] = {}
        try:
            await _run_all(served.engine, requests, client.on_gone, ends)
        finally:
            open_call.limited.use(_num_used(ends.values()))
        if client.gone:
            raise ClientGone
        finished = [ends[index] for index in range(len(requests))]
        for one in finished:
            open_call.record.note_finished(one)
        vectors = [_vector(one) for one in finished]
        if call.dimensions is not None and call.dimensions * 4 != len(vectors[0]):
            raise InvalidRequest(
                f"The model's vectors have {len(vectors[0]) // 4} dimensions; leave `dimensions` out.",
                param="dimensions",
            )
        usage = Usage(
            prompt_tokens=sum(map(len, texts)),
            completion_tokens=0,
            cached_tokens=sum(one.usage.cached_tokens for one in finished),
        )
        answer = embedding_list(
            vectors, model=served.name, num_tokens=usage.prompt_tokens, as_base64=call.as_base64
        )
        await open_call.responder.json(200, answer)
        open_call.record.end("stop", status=200, usage=usage)


def _tokenise(call: EmbeddingCall, served: ServedModel, info: EngineInfo) -> list[tuple[int, ...]]:
    texts: list[tuple[int, ...]] = []
    for text in call.inputs:
        if isinstance(text, str):
            texts.append(encode(text, served.tokenizer, info, _PARAM, answered=False))
        else:
            check_min_length(len(text), info.max_context, _PARAM, answered=False)
            check_token_ids(text, info.vocab_size, _PARAM)
            texts.append(text)
    return texts


def _request(token_ids: tuple[int, ...], index: int, pooling: Pooling, record: RequestRecord) -> Request:
    return Request(
        request_id=f"{record.request_id}-{index}",
        token_ids=token_ids,
        sampling=SamplingParams(),
        max_tokens=1,
        pooling=pooling,
        arrival_ns=record.arrival_ns,
    )


async def _run_all(
    engine: EngineClient,
    requests: Sequence[Request],
    on_gone: Callable[[Callable[[], object]], object],
    ends: dict[int, Finished],
) -> None:
    """Run every request, some at a time, and put its end into `ends`. Raises the first error, having cancelled the rest."""
    waiting = iter(enumerate(requests))
    live: set[str] = set()

    def cancel() -> None:
        for _ in waiting:
            pass
        for request_id in live:
            engine.cancel_nowait(request_id)

    async def work() -> None:
        for index, request in waiting:
            source = engine.submit_nowait(request)
            live.add(request.request_id)
            async for batch in source:
                ends.update((index, event) for event in batch if isinstance(event, Finished))
            live.discard(request.request_id)
            error = ends[index].error if index in ends else None
            if error is not None:
                raise error.to_error()

    on_gone(cancel)
    tasks = [asyncio.create_task(work()) for _ in range(min(_MAX_IN_ENGINE, len(requests)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # their cancelled requests end within a step


def _num_used(ends: Iterable[Finished]) -> int:
    """Return how many tokens count for the budget of the caller: those of texts that the engine began."""
    return sum(
        one.usage.prompt_tokens
        for one in ends
        if one.embedding is not None or one.first_scheduled_ns is not None
    )


def _vector(finished: Finished) -> bytes:
    if finished.embedding is None:
        raise InternalError("The engine ended a text without its embedding; send it again.")
    return finished.embedding
