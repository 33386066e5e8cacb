"""A server that computes nothing and keeps a schedule: what a client measures beyond the schedule is the client's own floor.

    python -m headway.lab.null_server --ttft-ms 20 --itl-ms 20 --tokens 100    prints its port, serves until its input ends

It answers every POST as a stream of chat completion chunks, each at an absolute time after the request's last byte, and
nothing else. It keeps connections open and reads nothing of a request but its length.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns

import httptools
import uvloop

from headway.core.clock import NS_PER_MS
from headway.lab.pacer import Pacer

STAMP_DIGITS = 19
"""Of a stamped token's text: when it was written, in ns of the monotonic clock, which all processes of a machine share."""

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the events of an answer are written, counted from the request's last byte."""

    ttft_ns: int
    itl_ns: int
    num_tokens: int
    stamped: bool = False
    """A token says when it was written, so that what the server itself was late by is known."""

    def due_ns(self, token: int) -> int:
        """Return when a token, counted from zero, is due."""
        return self.ttft_ns + token * self.itl_ns


def _chunk(payload: str) -> bytes:
    event = f"data: {payload}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def _delta(**fields: object) -> bytes:
    choice = {"index": 0, "delta": fields, "finish_reason": None}
    return _chunk(json.dumps({"object": "chat.completion.chunk", "choices": [choice]}, separators=(",", ":")))


_ROLE = _delta(role="assistant", content="")
_TOKEN = _delta(content=" x")
_STAMP = "0" * STAMP_DIGITS
_STAMPED = _delta(content=_STAMP).split(_STAMP.encode())


class NullServer:
    """Answers on connections that `protocol` makes; belongs to a running loop, as its pacer does."""

    def __init__(self, schedule: Schedule, pacer: Pacer, clock_ns: Callable[[], int] = monotonic_ns) -> None:
        self.schedule = schedule
        self.pacer = pacer
        self.clock_ns = clock_ns
        self.transports: set[asyncio.Transport] = set()
        usage = {"prompt_tokens": 1, "completion_tokens": schedule.num_tokens}
        usage["total_tokens"] = sum(usage.values())
        self.tail = _chunk(json.dumps({"choices": [], "usage": usage})) + _chunk("[DONE]") + b"0\r\n\r\n"

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _NullProtocol(self)

    def abort(self) -> None:
        """Close the connections that are still open."""
        for transport in list(self.transports):
            transport.abort()


class _NullProtocol(asyncio.Protocol):
    def __init__(self, server: NullServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server.transports.add(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        if self._transport is not None:
            self._server.transports.discard(self._transport)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.abort()

    def on_message_complete(self) -> None:
        """Called by the parser at a request's end."""
        if self._transport is None:
            return
        if self._parser.get_method() != b"POST":  # a model list, metrics: nothing of a schedule
            self._transport.write(_NOT_FOUND)
            return
        self._transport.write(_HEAD + _ROLE)
        self._plan(self._server.clock_ns(), 0)

    def _plan(self, start_ns: int, token: int) -> None:
        due_ns = start_ns + self._server.schedule.due_ns(token)
        self._server.pacer.call_at(due_ns, partial(self._send, start_ns, token))

    def _send(self, start_ns: int, token: int) -> None:
        if self._transport is None:  # the client has left
            return
        schedule = self._server.schedule
        text = (b"%019d" % self._server.clock_ns()).join(_STAMPED) if schedule.stamped else _TOKEN
        if token + 1 < schedule.num_tokens:
            self._transport.write(text)
            self._plan(start_ns, token + 1)
        else:
            self._transport.write(text + self._server.tail)


async def serve(schedule: Schedule, port: int) -> None:
    """Serve on loopback, print the port, and return when standard input ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    class Watch(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
            ended.set()

    with Pacer() as pacer:
        server = await loop.create_server(NullServer(schedule, pacer).protocol, "127.0.0.1", port)
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.connect_read_pipe(Watch, sys.stdin)
        await ended.wait()
        server.close()


def main() -> None:
    """Serve what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m headway.lab.null_server", description=__doc__)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--itl-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=100, help="of every answer, at least one")
    parser.add_argument("--stamped", action="store_true", help="each token's text is when it was written")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    args = parser.parse_args()
    if args.tokens < 1 or min(args.ttft_ms, args.itl_ms) < 0:
        parser.error("an answer has at least one token, and no time is negative")
    schedule = Schedule(
        ttft_ns=round(args.ttft_ms * NS_PER_MS),
        itl_ns=round(args.itl_ms * NS_PER_MS),
        num_tokens=args.tokens,
        stamped=args.stamped,
    )
    uvloop.run(serve(schedule, args.port))


if __name__ == "__main__":
    main()
