"""`/v1/streams/{id}`: go on with a stream, acknowledge its events, end it. What they mean: docs/streams.md."""

from typing import Final

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.errors import HeadwayError, InvalidRequest, ResyncRequired
from headway.core.events import StreamResumed
from headway.gateway.client_watch import ClientWatch, read_body
from headway.gateway.gateway import Gateway
from headway.gateway.request_info import request_info
from headway.gateway.response import Responder
from headway.gateway.stream_answer import send_stream
from headway.gateway.streams import Streams
from headway.streams.ids import START, Cursor, parse_after, parse_event_id
from headway.wire.error_shapes import shape_at
from headway.wire.stream_messages import read_ack

MAX_ACK_BYTES: Final = 4096
"""Of a body that may say why it is wrong; a right one has a hundred."""


def cursor_of(stream_id: str, last_event_id: str | None, after: str | None) -> Cursor:
    """Return where a client says it stands: by the header, else by the query; before the first event by neither.

    Raises InvalidRequest.
    """
    if last_event_id:
        named, cursor = parse_event_id(last_event_id)
        if named != stream_id:
            raise InvalidRequest("Last-Event-ID is of another stream.", param="last-event-id")
        return cursor
    return START if after is None else parse_after(after)


class StreamEndpoint:
    """`/v1/streams/{id}`.

    GET: what follows the client's cursor, 204 where nothing does. DELETE: cancel, and let it be gone.
    """

    def __init__(self, gateway: Gateway, streams: Streams) -> None:
        self._gateway = gateway
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; raises the HeadwayError that ended it, which a stream that began has told already."""
        request = HttpRequest(scope)
        stream_id: str = request.path_params["stream"]
        owner = request_info(scope).owner
        if request.method == "DELETE":
            await self._streams.owned(stream_id, owner)
            await self._streams.remove(stream_id)
            await Response(status_code=204)(scope, receive, send)
            return
        cursor = cursor_of(stream_id, request.headers.get("last-event-id"), request.query_params.get("after"))
        try:
            record, after = await self._streams.find(stream_id, owner, cursor)
        except ResyncRequired:
            self._gateway.tell(StreamResumed(resync=True))
            raise
        self._gateway.tell(StreamResumed(replayed=max(0, record.last_seq - after)))
        if record.state != "open" and after == record.last_seq:
            await Response(status_code=204)(scope, receive, send)  # WHATWG HTML, 9.2.2: do not come back
            return
        responder = Responder(send, timeout_s=self._gateway.config.slow_reader_timeout_s)
        responder.error_event = shape_at(self._streams.endpoint_of(record)).event
        try:
            async with ClientWatch(receive) as client:
                await send_stream(self._streams, stream_id, record.epoch, after, client, responder)
        except HeadwayError as error:
            if responder.started:
                await responder.error(error)
            raise


class StreamAckEndpoint:
    """`POST /v1/streams/{id}/ack`: all events up to a number have arrived, and may be dropped."""

    def __init__(self, gateway: Gateway, streams: Streams) -> None:
        self._gateway = gateway
        self._config = msgspec.structs.replace(gateway.config, max_body_bytes=MAX_ACK_BYTES)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; raises the HeadwayError that ended it."""
        stream_id: str = HttpRequest(scope).path_params["stream"]
        with self._gateway.bodies.body() as held:
            position = read_ack(await read_body(scope, receive, self._config, held))
        await self._streams.owned(stream_id, request_info(scope).owner)
        await self._streams.log.ack(stream_id, position.epoch, position.seq)
        await Response(status_code=204)(scope, receive, send)
