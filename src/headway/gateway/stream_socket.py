"""`WS /v1/streams/{id}/ws`: a stream with acknowledgements and heartbeats in band, and resending where they fail to come.

What is sent and sent again is decided by `streams.delivery`; this file carries it out. A stream is refused as over HTTP, by
a status, before the socket opens.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from headway.core.clock import NS_PER_S
from headway.core.errors import HeadwayError, InvalidRequest, ResyncRequired, StreamUnread
from headway.core.events import StreamEventKind, StreamResent, StreamResumed
from headway.gateway.gateway import Gateway
from headway.gateway.request_info import request_info
from headway.gateway.stream_routes import cursor_of
from headway.gateway.stream_run import StreamRun
from headway.gateway.streams import Streams
from headway.streams.delivery import Action, Delivery, Resend
from headway.streams.delivery import Send as SendEvent
from headway.streams.follower import PAGE_EVENTS, Follower
from headway.streams.record import Event, Page
from headway.wire.errors import error_body
from headway.wire.resumable import STREAM_HEADER
from headway.wire.stream_messages import (
    Ack,
    Heartbeat,
    Pong,
    Position,
    StreamError,
    StreamEvent,
    encode,
    read_from_client,
)

NORMAL, POLICY = 1000, 1008
"""Why a socket closes (RFC 6455, 7.4.1)."""
LAST_ACK_S = 30.0
"""How long a client may take to acknowledge the last event, or any of as many as may be out, before the socket closes."""
BUFFER_LOOK_S = 0.1
"""How often a buffer that holds bytes is looked at again."""


class StreamSocket:
    """The ASGI application of the route."""

    def __init__(self, gateway: Gateway, streams: Streams) -> None:
        self._gateway = gateway
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket; raises what keeps it from being opened."""
        await receive()  # websocket.connect
        connection = HTTPConnection(scope)
        stream_id: str = connection.path_params["stream"]
        cursor = cursor_of(
            stream_id, connection.headers.get("last-event-id"), connection.query_params.get("after")
        )
        try:
            record, after = await self._streams.find(stream_id, request_info(scope).owner, cursor)
        except ResyncRequired:
            self._gateway.tell(StreamResumed(resync=True))
            raise
        self._gateway.tell(StreamResumed(replayed=max(0, record.last_seq - after)))
        headers = [(STREAM_HEADER.encode(), stream_id.encode())]
        await send({"type": "websocket.accept", "headers": headers})
        unsent: Callable[[], int] = scope["extensions"].get("headway.unsent_bytes", lambda: 0)
        with Follower(self._streams.log, stream_id, record.epoch, after) as follower:
            await _Conversation(
                self._gateway, self._streams, stream_id, record.epoch, follower, unsent, send
            ).run(receive)


class _Conversation:
    """One socket that is open."""

    def __init__(
        self,
        gateway: Gateway,
        streams: Streams,
        stream_id: str,
        epoch: int,
        follower: Follower,
        unsent: Callable[[], int],
        send: Send,
    ) -> None:
        self._clock = gateway.clock
        self._tell = gateway.tell
        self._send_timeout_s = gateway.config.slow_reader_timeout_s
        self._streams = streams
        self._stream_id = stream_id
        self._epoch = epoch
        self._follower = follower
        self._unsent = unsent
        self._send = send
        self._delivery = Delivery()
        self._delivery.attach(follower.after, self._clock.now_ns())
        self._last_seq: int | None = None  # of the whole stream, once it is known
        self._close_ns: int | None = None
        self._buffer_is_empty = True

    async def run(self, receive: Receive) -> None:
        """Talk until the client leaves, has everything, or takes nothing."""
        incoming = asyncio.ensure_future(receive())
        page: asyncio.Future[Page] | None = None
        run: StreamRun | None = None
        with self._streams.reading(self._stream_id):
            try:
                while not self._is_over():
                    run = self._streams.run_of(self._stream_id) or run
                    if self._delivery.num_free == 0:
                        self._wait_for_acknowledgement()
                    elif page is None and self._last_seq is None:
                        limit = min(PAGE_EVENTS, self._delivery.num_free)
                        page = asyncio.ensure_future(self._follower.next_page(limit))
                    ends: set[asyncio.Future[Any]] = {incoming} | ({page} if page else set())
                    if run is not None:
                        ends.add(run.broken)
                    done, _ = await asyncio.wait(
                        ends, timeout=self._wait_s(), return_when=asyncio.FIRST_COMPLETED
                    )
                    if incoming in done:
                        message = incoming.result()
                        if message["type"] == "websocket.disconnect":
                            return
                        await self._hear(message)
                        incoming = asyncio.ensure_future(receive())
                    if page is not None and page in done:
                        await self._publish(page.result())
                        page = None
                    elif run is not None and run.broken.done():
                        raise run.broken.result()
                    await self._tick()
                await self._close(NORMAL)
            except HeadwayError as error:
                with suppress(OSError):
                    await self._say(StreamError(error=error_body(error).error))
                    await self._close(POLICY)
            except OSError:
                return  # it takes nothing (a TimeoutError), or has left: the server closes the connection
            finally:
                incoming.cancel()
                if page is not None and not page.cancel() and not page.cancelled():
                    page.exception()  # it came together with the client's leaving: nobody is left to be told

    def _is_over(self) -> bool:
        late = self._close_ns is not None and self._clock.now_ns() >= self._close_ns
        if self._last_seq is None and late:
            raise StreamUnread(
                "Nothing was acknowledged for too long; come back after the last event you have."
            )
        return late or (self._last_seq is not None and self._delivery.acked >= self._last_seq)

    def _wait_for_acknowledgement(self) -> None:
        if self._close_ns is None:
            self._close_ns = self._clock.now_ns() + int(LAST_ACK_S * NS_PER_S)

    def _wait_s(self) -> float | None:
        """Return how long nothing is to be done."""
        now_ns = self._clock.now_ns()
        due = [when for when in (self._delivery.deadline_ns(), self._close_ns) if when is not None]
        waits = [max(0.0, (when - now_ns) / NS_PER_S) for when in due]
        if not self._buffer_is_empty:
            waits.append(BUFFER_LOOK_S)
        return min(waits, default=None)

    async def _hear(self, message: Message) -> None:
        heard = read_from_client(message.get("text") or message.get("bytes") or b"")
        match heard:
            case Ack():
                await self._acknowledge(heard)
            case Heartbeat():
                if heard.ack is not None:
                    await self._acknowledge(heard.ack)
                await self._say(Pong(ms=heard.ms))

    async def _acknowledge(self, position: Position) -> None:
        if position.epoch != self._epoch:
            raise InvalidRequest("The acknowledgement is of another epoch.", param="epoch")
        await self._streams.log.ack(self._stream_id, position.epoch, position.seq)
        if self._last_seq is None and position.seq > self._delivery.acked:
            self._close_ns = None
        self._delivery.acknowledged(position.seq, self._clock.now_ns())
        self._follower.skip_to(self._delivery.sent)  # it may be ahead: an older connection delivered more

    async def _publish(self, page: Page) -> None:
        if page.complete:
            self._last_seq = page.events[-1].seq if page.events else self._follower.after
            self._wait_for_acknowledgement()
        by_seq = {event.seq: event for event in page.events if event.seq > self._delivery.sent}
        for event in by_seq.values():
            await self._act(
                self._delivery.numbered(event.seq, event.entry.kind, self._clock.now_ns()), by_seq
            )

    async def _tick(self) -> None:
        now_ns = self._clock.now_ns()
        deadline_ns = self._delivery.deadline_ns()
        if self._buffer_is_empty and (deadline_ns is None or deadline_ns > now_ns):
            return  # nobody needs to know what is on its way
        self._buffer_is_empty = self._unsent() == 0
        self._delivery.buffer(is_empty=self._buffer_is_empty, now_ns=now_ns)
        await self._act(self._delivery.tick(now_ns), {})

    async def _act(self, actions: list[Action], at_hand: dict[int, Event]) -> None:
        for action in actions:
            if not isinstance(action, SendEvent | Resend):
                continue
            event = at_hand.get(action.seq) or await self._again(action.seq)
            if event is not None:
                if isinstance(action, Resend):
                    kind: StreamEventKind = "content" if event.entry.kind == "content" else "control"
                    self._tell(StreamResent(kind=kind))
                await self._say(
                    StreamEvent(
                        epoch=self._epoch,
                        seq=event.seq,
                        kind=event.entry.kind,
                        data=event.entry.data.decode(),
                        name=event.entry.name,
                        last=event.seq == self._last_seq,
                    )
                )

    async def _again(self, seq: int) -> Event | None:
        """Return an event that was sent; None if it was acknowledged meanwhile, on another connection."""
        try:
            page = await self._streams.log.read(self._stream_id, self._epoch, seq - 1, 1)
        except HeadwayError:
            return None
        return page.events[0] if page.events else None

    async def _say(self, message: msgspec.Struct) -> None:
        """Send a message; raises TimeoutError where the client takes nothing for too long."""
        async with asyncio.timeout(self._send_timeout_s):
            await self._send({"type": "websocket.send", "text": encode(message).decode()})

    async def _close(self, code: int) -> None:
        async with asyncio.timeout(self._send_timeout_s):
            await self._send({"type": "websocket.close", "code": code})
