"""Requests at a constant rate on connections that are open, and when their first and their last event came."""

import asyncio
import gc
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Final

from gateway_overhead.model import NAME
from headway.core.clock import NS_PER_S
from headway.lab.connection import Connection, Response, connect
from headway.lab.pacer import Pacer

NUM_EVENTS: Final = 32
"""With a token each; what opens, ends and closes an answer are three more."""
BODY_BYTES: Final = 1024
SILENCE_S: Final = 30.0
MAX_UNDER_WAY: Final = 128
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer, in nanoseconds after its request had been written; and how long after its time that was."""

    first_ns: int
    last_ns: int
    late_ns: int


class CannotKeepUp(Exception):
    """All connections wait for the server when a request is due."""


def request(token: str | None, *, resumable: bool, max_tokens: int = NUM_EVENTS) -> bytes:
    """Return a chat request with a body of `BODY_BYTES`, as bytes for a socket."""
    body = {
        "model": NAME,
        "stream": True,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": ""}],
    }
    body["messages"] = [{"role": "user", "content": "x" * (BODY_BYTES - len(json.dumps(body)))}]
    data = json.dumps(body).encode()
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *([] if token is None else [f"Authorization: Bearer {token}"]),
        *(["X-Headway-Resumable: 1"] if resumable else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def raw_answer(port: int, data: bytes) -> bytes:
    """Return the bytes of one answer, framing and all."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(data)
    answer = await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    return answer


async def offer(
    port: int, requests: Sequence[bytes], rate: int, seconds: float, num_connections: int = MAX_UNDER_WAY
) -> list[Timing]:
    """Send `rate` requests a second, of each in turn; return what came of each.

    Raises CannotKeepUp, and RuntimeError for an answer that is not as it should be.
    """
    free = deque([await connect(HOST, port) for _ in range(num_connections)])
    connections = tuple(free)
    start_ns = monotonic_ns() + NS_PER_S // 10
    count = round(rate * seconds)
    due_ns = [start_ns + number * NS_PER_S // rate for number in range(count)]
    timings: list[Timing] = []
    tasks: set[asyncio.Task[None]] = set()
    num_unsent = 0

    async def one(connection: Connection, number: int) -> None:
        response = await connection.request(requests[number % len(requests)], silence_s=SILENCE_S)
        timings.append(_timing(response, due_ns[number]))
        free.append(connection)

    def begin(number: int) -> None:
        nonlocal num_unsent
        if free:
            tasks.add(asyncio.create_task(one(free.popleft(), number)))
        else:
            num_unsent += 1

    gc.collect()
    gc.disable()  # a pause of the client's would be taken for the server's
    try:
        with Pacer() as pacer:
            for number in range(count):
                pacer.call_at(due_ns[number], partial(begin, number))
            await pacer.sleep_until(due_ns[-1] + NS_PER_S // rate)
        await asyncio.gather(*tasks)
    finally:
        gc.enable()
        for connection in connections:
            connection.close()
    if num_unsent:
        raise CannotKeepUp(f"{num_unsent} of {count} requests found all {num_connections} connections busy")
    return timings


def _timing(response: Response, due_ns: int) -> Timing:
    num_events = response.body.count(b"data: ")
    if response.status != 200 or response.end != "complete" or num_events != NUM_EVENTS + 3:
        raise RuntimeError(f"{response.status}, {response.end}: {bytes(response.body[:300])!r}")
    return Timing(
        first_ns=response.reads_ns[0] - response.written_ns,
        last_ns=response.reads_ns[-1] - response.written_ns,
        late_ns=response.written_ns - due_ns,
    )
