"""Sends a resumable stream to one client as server-sent events, from where he stands, live or replayed."""

import asyncio

from headway.core.errors import HeadwayError
from headway.gateway.client_watch import ClientWatch
from headway.gateway.response import Responder
from headway.gateway.stream_entries import wire_bytes
from headway.gateway.stream_run import StreamRun
from headway.gateway.streams import Streams
from headway.streams.follower import Follower
from headway.streams.ids import FIRST_EPOCH
from headway.wire import sse
from headway.wire.resumable import STREAM_HEADER


def stream_headers(stream_id: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of a response that can be resumed."""
    return (*sse.HEADERS, (STREAM_HEADER.encode(), stream_id.encode()))


async def send_first(streams: Streams, run: StreamRun, client: ClientWatch, responder: Responder) -> None:
    """Send the answer to whoever asked for it, from the log, as to anybody who comes back.

    Raises ClientGone, SlowReader, and the HeadwayError that ended it, which a stream that began has told already.
    """
    with streams.reading(run.stream_id):
        await client.race(asyncio.create_task(_opened(run, streams.ping_s)))
        try:
            await send_stream(streams, run.stream_id, FIRST_EPOCH, 0, client, responder)
        except HeadwayError as error:
            if responder.started:
                await responder.error(error)
            raise


async def _opened(run: StreamRun, patience_s: float) -> None:
    """Wait for the stream's name, which it gets with its first tokens; while it is queued for long, without any."""
    await asyncio.wait({run.opened}, timeout=patience_s)
    if not run.opened.done():
        await run.open()
    await asyncio.shield(run.opened)


async def send_stream(
    streams: Streams, stream_id: str, epoch: int, after: int, client: ClientWatch, responder: Responder
) -> None:
    """Send what follows event `after`, to the end or until the client leaves.

    Raises SlowReader, and what ended the stream for this reader, the log's errors among them.
    """
    responder.stream_headers = stream_headers(stream_id)
    run: StreamRun | None = None
    with Follower(streams.log, stream_id, epoch, after) as follower, streams.reading(stream_id):
        client.on_gone(follower.wake)
        await responder.stream(b"")
        while not client.gone:
            run = streams.run_of(stream_id) or run  # another may go on with it
            page = await follower.page()
            if page.complete:
                await responder.stream_end(wire_bytes(stream_id, epoch, page.events))
                return
            if page.events:
                await responder.stream(wire_bytes(stream_id, epoch, page.events))
            elif run is not None and run.broken.done():
                raise run.broken.result()
            elif not await _news(follower, streams.ping_s):
                await responder.stream(sse.PING)


async def _news(follower: Follower, patience_s: float) -> bool:
    """Wait until there may be more; return False if nothing was heard for so long."""
    is_late = False

    def late() -> None:
        nonlocal is_late
        is_late = True
        follower.wake()

    timer = asyncio.get_running_loop().call_later(patience_s, late)
    try:
        await follower.wait()
    finally:
        timer.cancel()
    return not is_late
