"""An HTTP server whose every answer is a function of the request: for what a client asks beside a load."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headway.lab.endpoint import Endpoint

Answer = Callable[[str, str, bytes], tuple[int, bytes]]
"""(method, path, body) → (status, body)."""


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Endpoint]:
    """Give the endpoint of a server on loopback that answers one request a connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        body = await reader.readexactly(int(lengths[0].split(":")[1]) if lengths else 0)
        status, told = answer(method, path, body)
        about = b"Connection: close\r\nContent-Length: %d" % len(told)
        writer.write(b"HTTP/1.1 %d X\r\n%b\r\n\r\n%b" % (status, about, told))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")


def as_json(told: object) -> tuple[int, bytes]:
    """Return the answer 200 with a body of JSON."""
    return 200, json.dumps(told).encode()
