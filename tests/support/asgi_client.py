"""Drives an ASGI application message by message, so that a test decides when a client sends, reads and leaves."""

import asyncio
from collections.abc import Mapping
from types import TracebackType

import msgspec
from starlette.types import ASGIApp, Message, Scope


class Exchange:
    """One request and its response. Use as `async with`: leaving it hangs up and waits for the application."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        complete: bool = True,
        reads: bool = True,
    ) -> None:
        self._app = app
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.partition("?")[0],
            "raw_path": path.partition("?")[0].encode(),
            "query_string": path.partition("?")[2].encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": not complete})
        self._outgoing: asyncio.Queue[Message | None] = asyncio.Queue()
        self._readable = asyncio.Event()
        if reads:
            self._readable.set()
        self._task: asyncio.Task[None] | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False

    async def __aenter__(self) -> "Exchange":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()
        if self._task is not None:
            await self.wait_ended()

    def send(self, body: bytes, *, more: bool = False) -> None:
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def disconnect(self) -> None:
        self._readable.set()
        self._incoming.put_nowait({"type": "http.disconnect"})

    def cancel(self) -> None:
        """Cancel the application's task, as a server does that stops at once."""
        assert self._task is not None
        self._task.cancel()

    def forget(self) -> None:
        """Do not wait for the application when the exchange is left: its end has been seen."""
        self._task = None

    async def wait_ended(self) -> None:
        """Wait until the application has returned; raises what it raised."""
        assert self._task is not None
        await self._task

    async def read_status(self) -> int:
        """Wait for the response to start."""
        while self.status is None:
            await self._next()
        return self.status

    async def read_event(self) -> str | None:
        """Return the next event's data; None at the end of the body. Several events may come in one message."""
        while b"\n\n" not in self._buffer and not self.complete:
            await self._next()
        event, mark, self._buffer = self._buffer.partition(b"\n\n")
        if not mark:
            assert not event, f"the body ends within an event: {event!r}"
            return None
        assert b"\r" not in event
        assert event.startswith(b"data: ")
        return event[len(b"data: ") :].decode()

    async def read_numbered(self) -> tuple[str, str] | None:
        """Return the next event's id and data, comments left out; None at the end of the body."""
        while b"\n\n" not in self._buffer and not self.complete:
            await self._next()
        event, mark, self._buffer = self._buffer.partition(b"\n\n")
        lines = [line for line in event.decode().split("\n") if not line.startswith(":")]
        if not mark:
            assert not any(lines), f"the body ends within an event: {event!r}"
            return None
        name, data = lines[0], lines[-1]
        assert name.startswith("id: ")
        assert data.startswith("data: ")
        return name[len("id: ") :], data[len("data: ") :]

    async def read_all_numbered(self) -> list[tuple[str, str]]:
        """Return the events that are left."""
        events = []
        while (event := await self.read_numbered()) is not None:
            events.append(event)
        return events

    async def read_json_event(self) -> dict[str, object]:
        event = await self.read_event()
        assert event is not None
        value = msgspec.json.decode(event)
        assert isinstance(value, dict)
        return value

    async def read_body(self) -> bytes:
        """Return the whole body."""
        while not self.complete:
            await self._next()
        return self._buffer

    async def read_json(self) -> dict[str, object]:
        value = msgspec.json.decode(await self.read_body())
        assert isinstance(value, dict)
        return value

    @property
    def is_waiting(self) -> bool:
        """Whether the application has said nothing yet."""
        return self.status is None and self._outgoing.empty()

    @property
    def received(self) -> bytes:
        """What has come and was not read as events."""
        return self._buffer

    async def wait_bytes(self) -> None:
        """Wait for the next part of the response."""
        await self._next()

    _buffer = b""

    async def _next(self) -> None:
        message = await self._outgoing.get()
        assert message is not None, "the application returned before its response was complete"
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self._buffer += message.get("body", b"")
            self.complete = not message.get("more_body", False)

    async def _run(self) -> None:
        async def send(message: Message) -> None:
            await self._readable.wait()
            self._outgoing.put_nowait(message)

        try:
            await self._app(self._scope, self._incoming.get, send)
        finally:
            self._outgoing.put_nowait(None)
