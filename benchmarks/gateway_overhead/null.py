"""A server that reads a request and writes bytes that it was given: what is left is the kernel's share and the client's.

python -m gateway_overhead.null --core 0 FILE      prints its port, serves until its input ends
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

import httptools
import uvloop


class Null(asyncio.Protocol):
    """One connection. The first event goes out on its own, so that it may be seen before the rest."""

    def __init__(self, answer: bytes) -> None:
        end = answer.index(b"\n\n") + 2
        self._first, self._rest = answer[:end], answer[end:]
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        assert self._transport is not None
        self._transport.write(self._first)
        self._transport.write(self._rest)


async def serve(answer: bytes) -> None:
    """Serve on loopback until standard input ends."""
    ended = asyncio.Event()

    class Watch(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
            ended.set()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Null(answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.connect_read_pipe(Watch, sys.stdin)
    await ended.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="gateway_overhead.null")
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("answer", type=Path)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    uvloop.run(serve(args.answer.read_bytes()))


if __name__ == "__main__":
    main()
