"""A light client for benchmarks: many plain HTTP/1.1 streams on one event loop, stamped when bytes arrive.

It does not parse JSON while it measures; it counts `data:` lines. It knows nothing of Headway but its OpenAI route.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stream:
    """What one stream saw. Stamps are monotonic nanoseconds, one per `data:` event with content."""

    started_ns: int
    event_ns: list[int] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)


class _StreamProtocol(asyncio.Protocol):
    """Sends one request and stamps each event of the response."""

    def __init__(self, request: bytes, done: asyncio.Future[Stream]) -> None:
        self._request = request
        self._done = done
        self._tail = b""
        self.stream = Stream(started_ns=time.monotonic_ns())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self.stream.body += data
        window = self._tail + data
        self.stream.event_ns.extend([now_ns] * window.count(b'"content":"'))
        self._tail = window[-10:] if b'"content":"' not in window[-10:] else b""
        if b"data: [DONE]" in self.stream.body[-64:]:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        if not self._done.done():
            self._done.set_result(self.stream)


def chat_request(host: str, model: str, prompt: str, output_tokens: int) -> bytes:
    """Encode one streaming chat request that generates exactly `output_tokens` tokens."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def run_streams(host: str, port: int, requests: list[bytes]) -> list[Stream]:
    """Send every request at once, each on its own connection, and return what each stream saw."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Stream]] = [loop.create_future() for _ in requests]
    for request, future in zip(requests, futures, strict=True):
        await loop.create_connection(lambda r=request, f=future: _StreamProtocol(r, f), host, port)  # type: ignore[misc]
    return list(await asyncio.gather(*futures))
