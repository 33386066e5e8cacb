"""What every call that costs the engine something has in common, around its own part: read, parse, find, watch, account.

It knows no endpoint: what a call does between its body and its answer is passed in.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from headway.core.caller import NOBODY, Caller
from headway.core.errors import HeadwayError
from headway.core.messages import EngineInfo
from headway.core.request import ServiceClass
from headway.gateway import admission
from headway.gateway.client_watch import ClientGone, ClientWatch, read_body
from headway.gateway.door import Call
from headway.gateway.edge import unexpected
from headway.gateway.gateway import Gateway
from headway.gateway.request_info import request_info, route_of
from headway.gateway.request_record import CLIENT_CLOSED_STATUS, RequestRecord
from headway.gateway.response import Responder, SlowReader
from headway.gateway.served import ServedModel, find_model
from headway.wire.json_bounds import SMALL_BYTES
from headway.wire.resumable import wants_resumable
from headway.wire.service_headers import NOTHING_ASKED, ServiceTerms


class NamedCall(Protocol):
    """What every call has."""

    @property
    def model(self) -> str | None:
        """The model named, if any."""
        ...


C = TypeVar("C", bound=NamedCall)


class OpenCall(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """A call while it is served.

    num_bytes   of its body
    terms       what it asks of scheduling
    limited     what it takes of its caller's limits
    caller      who asks
    path        of its route
    resumable   whether its stream is to outlive its connection
    body        as it came, if it is to be resumable; else nothing
    """

    call: C
    num_bytes: int
    terms: ServiceTerms
    caller: Caller
    path: str
    limited: Call
    resumable: bool
    body: bytes
    served: ServedModel
    record: RequestRecord
    client: ClientWatch
    responder: Responder


async def conduct(
    gateway: Gateway,
    scope: Scope,
    receive: Receive,
    send: Send,
    parse: Callable[[bytes], C],
    serve: Callable[[OpenCall[C]], Awaitable[None]],
    *,
    service_class: ServiceClass | None = None,
) -> None:
    """Serve one call with `serve`, which ends its record when all went well; in `service_class`, unless that is None.

    Raises the HeadwayError that ended the call, which a stream that began has told already.
    """
    info = request_info(scope)
    resumable = wants_resumable(scope["headers"])
    body = b""

    def parse_and_keep(data: bytes) -> C:
        nonlocal body
        body = data if resumable else b""
        return parse(data)

    call, num_bytes = await read_call(gateway, scope, receive, parse_and_keep)
    caller = info.caller or NOBODY
    info.terms = admission.terms_of(caller, scope["headers"], trust_headers=gateway.config.trust_headers)
    terms = info.terms or NOTHING_ASKED
    if service_class is not None:
        terms = replace(terms, service_class=service_class)
        if info.terms is not None:  # the access line tells the class it was served in
            info.terms = terms
    served = find_model(gateway.models, call.model)
    record = info.record = RequestRecord(
        request_id=info.request_id,
        model=served.name,
        service_class=terms.service_class,
        arrival_ns=info.arrival_ns,
        clock=gateway.clock,
        hook=gateway.hook,
        caller=info.caller,
        endpoint=route_of(scope),
    )
    responder = Responder(send, timeout_s=gateway.config.slow_reader_timeout_s, error_shape=info.error_shape)
    with gateway.count_active():
        try:
            async with ClientWatch(receive) as client:
                await serve(
                    OpenCall(
                        call=call,
                        num_bytes=num_bytes,
                        terms=terms,
                        limited=info.call,
                        resumable=resumable,
                        body=body,
                        caller=caller,
                        path=route_of(scope),
                        served=served,
                        record=record,
                        client=client,
                        responder=responder,
                    )
                )
        except (ClientGone, asyncio.CancelledError) as error:
            if not info.call.is_kept:  # else whoever kept it says how it ended
                record.end("cancelled", status=CLIENT_CLOSED_STATUS)
                if isinstance(error, ClientGone):
                    info.call.note_answer(abandoned=True)
            raise
        except HeadwayError as error:
            if not info.call.is_kept:
                record.end_with_error(error)
            raise
        except SlowReader:
            if not info.call.is_kept:
                info.call.note_answer(abandoned=True)
            raise
        except Exception as error:
            failure = unexpected(error, info.request_id)
            if not info.call.is_kept:
                record.end_with_error(failure)
            if responder.started:
                await responder.error(failure)
            raise failure from error
        if not info.call.is_kept:
            info.call.note_answer(abandoned=False)


async def read_call(
    gateway: Gateway, scope: Scope, receive: Receive, parse: Callable[[bytes], C]
) -> tuple[C, int]:
    """Read and parse a body; return the call and how many bytes it had. The body is not kept.

    A large one is parsed on the tokenising thread, a native call at a time, so that streams go on between them.
    Raises what `read_body` does, InvalidRequest, QueueFull.
    """
    with gateway.bodies.body() as held:
        body = await read_body(scope, receive, gateway.config, held)
        if len(body) <= SMALL_BYTES:
            return parse(body), len(body)
        async with ClientWatch(receive) as client:
            job = partial(parse, body)
            caller = request_info(scope).caller or NOBODY
            return await client.race(gateway.prompt_worker.submit_nowait(job, len(body), caller)), len(body)


def admitted(gateway: Gateway, served: ServedModel) -> EngineInfo:
    """Return what the engine is; raises why it takes nothing now."""
    refusal = admission.refusal(served.engine.state, draining=gateway.draining)
    if refusal is not None:
        raise refusal
    return served.engine.info
