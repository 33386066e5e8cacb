"""Endpoints by script on Unix sockets, in virtual time, and a client's HTTP that reaches them by host name."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from headway.client.httpx_http import HttpxHttp
from support.scripted_server import Reply
from support.virtual_loop import VirtualLoop


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came. `headers`: names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_ms: float

    @property
    def fields(self) -> dict[str, Any]:
        """The body's JSON."""
        fields: dict[str, Any] = json.loads(self.body)
        return fields


Script = Callable[[int, Asked], Reply]
"""What a request gets, by its number at this endpoint and itself."""


@dataclass
class ScriptedEndpoint:
    """What an endpoint does and saw. `hung_up_ms`: when clients left before their answers' ends."""

    script: Script
    clock: VirtualLoop
    asked: list[Asked] = field(default_factory=list)
    hung_up_ms: list[float] = field(default_factory=list)
    num_connections: int = 0

    def _now_ms(self) -> float:
        return self.clock.now / 1e6 - 1000

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.num_connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                headers = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                asked = Asked(method, path, headers, body, self._now_ms())
                self.asked.append(asked)
                if not await self._answer(self.script(len(self.asked) - 1, asked), reader, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Return whether the connection goes on."""
        sending = asyncio.ensure_future(self._send(reply, writer))
        leaving = asyncio.ensure_future(reader.read(1))  # a client sends nothing while it is answered
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.hung_up_ms.append(self._now_ms())
                return False
            sending.result()
            return reply.ending == "complete"
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})

    async def _send(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        start_ms = self._now_ms()
        writer.write(reply.head)
        chunked = b"chunked" in reply.head
        for at_ms, data in reply.sent:
            if (left_ms := start_ms + at_ms - self._now_ms()) > 0:
                await asyncio.sleep(left_ms / 1000)
            writer.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            await writer.drain()
        if reply.ending == "silent":
            await asyncio.get_running_loop().create_future()
        if chunked and reply.ending == "complete":
            writer.write(b"0\r\n\r\n")
        await writer.drain()


class _ByHost(httpx2.AsyncBaseTransport):
    """Reaches each host over a Unix socket."""

    def __init__(self, sockets: Mapping[str, str]) -> None:
        self._sockets = sockets
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        if host not in self._transports:
            limits = httpx2.Limits(max_connections=None)
            path = self._sockets.get(host, "/nobody/listens/here")
            self._transports[host] = httpx2.AsyncHTTPTransport(uds=path, verify=False, limits=limits)
        return await self._transports[host].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


@dataclass(frozen=True)
class World:
    """Endpoints by host name, and what reaches them. A host without a script refuses connections."""

    clock: VirtualLoop
    endpoints: Mapping[str, ScriptedEndpoint]
    http: HttpxHttp


@asynccontextmanager
async def world(clock: VirtualLoop, folder: Path, **scripts: Script) -> AsyncIterator[World]:
    """Serve an endpoint for each script."""
    endpoints = {name: ScriptedEndpoint(script, clock) for name, script in scripts.items()}
    sockets = {
        name: str(folder / str(number)) for number, name in enumerate(scripts)
    }  # a path has 107 characters
    tasks: set[asyncio.Task[None]] = set()

    def serving(endpoint: ScriptedEndpoint) -> Callable[..., None]:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.ensure_future(endpoint.serve(reader, writer)))

        return serve

    async with AsyncExitStack() as stack:
        for name, endpoint in endpoints.items():
            server = await asyncio.start_unix_server(serving(endpoint), sockets[name])
            await stack.enter_async_context(server)
        http = HttpxHttp(_ByHost(sockets), tls=False)
        try:
            yield World(clock, endpoints, http)
        finally:
            await http.aclose()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.sleep(0)  # transports close in the loop's next round
