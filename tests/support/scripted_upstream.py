"""A server with OpenAI's API and vLLM's token ids, by script: what remote engines are tested against."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(*token_ids: int, index: int = 0, reason: str | None = None, **fields: object) -> bytes:
    """Return one event of a completion."""
    choice = {"index": index, "text": "x", "token_ids": token_ids, "finish_reason": reason, **fields}
    return event({"choices": [choice]})


def event(value: object) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


def refusal(status: int, code: object = None, *, message: str = "because", headers: str = "") -> bytes:
    """Return a whole answer that is none."""
    body = json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}Connection: close\r\n\r\n"
    return head.encode() + body


@dataclass(slots=True)
class Asked:
    """One completion that was asked for. `gone`: its client has left."""

    fields: dict[str, Any]
    headers: dict[str, str]
    gone: asyncio.Event = field(default_factory=asyncio.Event)


Write = Callable[[bytes], Awaitable[None]]
Script = Callable[[Asked, Write], Awaitable[None]]


@dataclass(slots=True)
class ScriptedUpstream:
    """`script` answers streams; the connection closes behind it. `models`, `probe`: bodies, or (bytes) whole answers."""

    script: Script | None = None
    models: object = field(
        default_factory=lambda: {"data": [{"id": "up", "owned_by": "vllm", "max_model_len": 100}]}
    )
    probe: object = field(
        default_factory=lambda: {
            "choices": [{"index": 0, "token_ids": [1]}],
            "usage": {"prompt_tokens": 3},
            "system_fingerprint": "hw_1",
        }
    )
    asked: list[Asked] = field(default_factory=list)
    num_polls: int = 0
    arrived: asyncio.Queue[Asked] = field(default_factory=asyncio.Queue)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {
                k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if head.startswith("GET /v1/models "):
                self.num_polls += 1
                writer.write(_whole(self.models))
            elif not json.loads(body).get("stream"):
                writer.write(_whole(self.probe))
            else:
                await self._stream(Asked(json.loads(body), headers), reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(asked)
        self.arrived.put_nowait(asked)
        assert self.script is not None

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        async def watch() -> None:
            await reader.read()
            asked.gone.set()

        watching = asyncio.create_task(watch())
        try:
            await self.script(asked, write)
        finally:
            watching.cancel()


def _whole(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)


def saying(*pieces: bytes) -> Script:
    """Return a script that writes `pieces`, the first of which may be a whole answer."""

    async def script(_: Asked, write: Write) -> None:
        for piece in pieces:
            await write(piece)

    return script


@asynccontextmanager
async def upstream(script: Script | None = None, port: int = 0) -> AsyncIterator[ScriptedUpstream]:
    """Serve on loopback; leaving cuts off what runs."""
    scripted = ScriptedUpstream(script)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await scripted.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield scripted
    finally:
        server.close()
        running = set(tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
