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
BODY_BYTES: Final = 1024
SILENCE_S: Final = 30.0
MAX_UNDER_WAY: Final = 128
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Timing:
    """One answer, in nanoseconds after its request had been written."""

    first_ns: int
    last_ns: int


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
    """Send `rate` requests a second, of each in turn; raises RuntimeError for an answer that is not as it should be.

    So it does where the server cannot keep up, and all connections wait for it.
    """
    free = deque([await connect(HOST, port) for _ in range(num_connections)])
    timings: list[Timing] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(connection: Connection, data: bytes) -> None:
        timings.append(_timing(await connection.request(data, silence_s=SILENCE_S)))
        free.append(connection)

    def begin(number: int) -> None:
        if not free:
            raise RuntimeError(f"{num_connections} requests are under way: the server cannot keep up")
        tasks.add(asyncio.create_task(one(free.popleft(), requests[number % len(requests)])))

    gc.collect()
    gc.disable()
    loop = asyncio.get_running_loop()
    failed: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failed.append(context))
    try:
        with Pacer() as pacer:
            start_ns = monotonic_ns() + NS_PER_S // 10
            for number in range(round(rate * seconds)):
                pacer.call_at(start_ns + number * NS_PER_S // rate, partial(begin, number))
            await pacer.sleep_until(start_ns + round(seconds * NS_PER_S) + NS_PER_S // 10)
            await asyncio.gather(*tasks)
    finally:
        loop.set_exception_handler(None)
        gc.enable()
    if failed:
        raise RuntimeError(f"{len(failed)} requests were not sent: {failed[0].get('exception')}")
    while free:
        free.pop().close()
    return timings


def _timing(response: Response) -> Timing:
    num_events = response.body.count(b"data: ")
    if response.status != 200 or response.end != "complete" or num_events != NUM_EVENTS + 3:
        raise RuntimeError(f"{response.status}, {response.end}: {bytes(response.body[:300])!r}")
    return Timing(
        response.reads_ns[0] - response.written_ns, response.reads_ns[-1] - response.written_ns
    )
