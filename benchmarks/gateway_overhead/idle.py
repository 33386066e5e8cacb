"""What a stream that waits takes of the server's memory: queued, before its first event, or begun, after it."""

import asyncio
import resource
from collections.abc import Sequence

from gateway_overhead.load import HOST, offer, request
from gateway_overhead.model import BEGUN, QUEUED
from gateway_overhead.processes import Process

_AT_ONCE = 50
_FEW = 16
"""Connections before, so that hardly any memory is free for the streams when they come."""
_SETTLE_S = 1.0
"""For what the opening of the last streams left to do."""

Stream = tuple[asyncio.StreamWriter, "asyncio.Task[bytes]"]
"""A stream, and what reads on."""


async def idle_bytes(
    server: Process, tokens: Sequence[str | None], num_streams: int, *, begun: bool, resumable: bool
) -> float:
    """Return the bytes of one stream: resident memory beyond that of a server that has answered, over `num_streams`.

    Raises RuntimeError where a stream is not what it should be.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    warm = [request(token, resumable=resumable) for token in tokens]
    await offer(server.port, warm, rate=100, seconds=5, num_connections=_FEW)
    await asyncio.sleep(_SETTLE_S)
    before = server.resident_bytes()
    data = [request(token, resumable=resumable, max_tokens=BEGUN if begun else QUEUED) for token in tokens]
    streams: list[Stream] = []
    for start in range(0, num_streams, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, num_streams))
        streams += await asyncio.gather(
            *(_open(server.port, data[number % len(data)], begun=begun) for number in numbers)
        )
    await asyncio.sleep(_SETTLE_S)
    after = server.resident_bytes()
    if any(more.done() for _, more in streams):
        raise RuntimeError("a stream that was to wait got something")
    for writer, more in streams:
        more.cancel()
        writer.close()
    return (after - before) / num_streams


async def _open(port: int, data: bytes, *, begun: bool) -> Stream:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(data)
    if begun:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readuntil(b'"content":"x"')
        await reader.readuntil(b"\n\n\r\n")  # the end of the chunk
    return writer, asyncio.create_task(reader.read(1))
