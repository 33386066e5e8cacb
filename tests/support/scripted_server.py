"""A chat server by script, asked by the lab's own driver and client: over sockets, or in virtual time.

In virtual time a second passes when nothing else can happen. Client and server then talk over a pair of Unix sockets, whose
bytes are there as soon as they are written, so that what is measured is the script itself, however busy the machine.
"""

import asyncio
import json
import selectors
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Self
from unittest import mock

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.lab.chat_body import chat_body
from headway.lab.client import Client, Patience
from headway.lab.connection import Connection
from headway.lab.drive import Driver
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Exchange
from headway.lab.workload import Conversation, WorkloadRequest
from support.scripted_stream import DONE, tokens

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a request gets. `sent`: (milliseconds since it came, bytes of the body), each of them one write.

    `ending`: the answer is complete, the connection is closed in the middle of it, or nothing more is ever said.
    """

    sent: Iterable[tuple[float, bytes]] = ()
    head: bytes = _HEAD
    ending: Literal["complete", "closed", "silent"] = "complete"


def answer(ttft_ms: float = 10, itl_ms: float = 10, num_tokens: int = 3, then: bytes = DONE) -> Reply:
    """Return a good answer of one token a chunk, the last one with the stream's end."""
    *first, (last_ms, last) = tokens(ttft_ms, itl_ms, num_tokens)
    return Reply(sent=[*first, (last_ms, last + then)])


def refusal(status: str, headers: str = "") -> Reply:
    """Return an answer without a body, such as 429."""
    return Reply(head=f"HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\n\r\n".encode())


Answer = Callable[[int, float], Reply]
"""What a request gets by its number, from 0 in the order in which they came, and the milliseconds since the server began."""


class ScriptedServer:
    """Answers chats by script and keeps the bytes of their requests; of anything else it knows nothing (404)."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._start_s = asyncio.get_running_loop().time()
        self.received: list[bytes] = []

    @property
    def messages(self) -> list[Any]:
        """The chats that were asked for."""
        return [json.loads(request.split(b"\r\n\r\n", 1)[1])["messages"] for request in self.received]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                asked = head + await reader.readexactly(int(length or 0))
                if not head.startswith(b"POST /v1/chat/completions "):
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.received.append(asked)
                came_s = asyncio.get_running_loop().time()
                reply = self._answer(len(self.received) - 1, (came_s - self._start_s) * 1000)
                await _send(reply, writer, came_s)
                if reply.ending == "closed":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _send(reply: Reply, writer: asyncio.StreamWriter, came_s: float) -> None:
    loop = asyncio.get_running_loop()
    writer.write(reply.head)
    chunked = reply.head is _HEAD
    for at_ms, data in reply.sent:
        if (left_s := came_s + at_ms / 1000 - loop.time()) > 0:
            await asyncio.sleep(left_s)
        writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
    if reply.ending == "silent":
        await loop.create_future()
    if chunked and reply.ending == "complete":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[tuple[ScriptedServer, Endpoint]]:
    """Serve on loopback, in real time."""
    scripted = ScriptedServer(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await scripted.serve(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield scripted, Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def talks(num_turns: int = 1) -> Iterator[Conversation]:
    """Return endless conversations."""
    for number in count():
        turns = tuple(f"question {number}.{turn}" for turn in range(1, num_turns + 1))
        yield Conversation(number=number, user_turns=turns, max_output_tokens=8, label="test")


def body(request: WorkloadRequest) -> bytes:
    """Return a request's body."""
    return chat_body(request, "m")


def offer_virtually(
    answer: Answer,
    offsets_ms: Iterable[float] | None = None,
    *,
    num_users: int = 1,
    num_requests: int = 1,
    patience: Patience | None = None,
) -> list[Exchange]:
    """Return the records of an open load at `offsets_ms`, without them of a closed one, all in virtual time, by start."""
    clock = _VirtualClock()
    loop = _VirtualLoop(clock)

    async def offer() -> list[Exchange]:
        server = ScriptedServer(answer)
        serving: list[asyncio.Task[None]] = []

        async def connect(
            host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = 10.0
        ) -> Connection:
            del host, port, tls, timeout_s
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=theirs)
            serving.append(loop.create_task(server.serve(reader, writer)))
            _, connection = await loop.create_connection(
                lambda: Connection(clock.now_ns, clock.monotonic_ns), sock=ours
            )
            return connection

        with (
            mock.patch("headway.lab.client.connect", connect),
            Client(Endpoint(host="virtual", port=1, path="/v1"), patience) as client,
        ):
            driver = Driver(client, body)
            if offsets_ms is None:
                await driver.closed(num_users, talks(), num_conversations=num_requests)
            else:
                await driver.open([round(at_ms * NS_PER_MS) for at_ms in offsets_ms], talks())
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the loop's next round
        return sorted(driver.offered.exchanges, key=lambda exchange: exchange.stamps.intended_ns)

    with (
        mock.patch("headway.lab.drive.time", clock),
        mock.patch("headway.lab.client.time", clock),
        mock.patch("headway.lab.drive.Pacer", return_value=_VirtualPacer(clock)),
    ):
        try:
            return loop.run_until_complete(offer())
        finally:
            loop.close()


class _VirtualClock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_ns = NS_PER_S

    def monotonic_ns(self) -> int:
        return self.now_ns


class _VirtualSelector(selectors.EpollSelector):
    """Lets time pass instead of waiting."""

    def __init__(self, clock: _VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for ever"
            self._clock.now_ns += round(timeout * NS_PER_S)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: _VirtualClock) -> None:
        super().__init__(_VirtualSelector(clock))
        self._virtual = clock

    def time(self) -> float:
        return self._virtual.now_ns / NS_PER_S


class _VirtualPacer:
    def __init__(self, clock: _VirtualClock) -> None:
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    async def sleep_until(self, deadline_ns: int) -> None:
        await asyncio.sleep((deadline_ns - self._clock.now_ns) / NS_PER_S)
        assert abs(self._clock.now_ns - deadline_ns) <= 1
