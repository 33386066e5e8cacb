"""What one event of a remote engine's stream costs the gateway's process, and how much of it is the HTTP library's.

    PYTHONPATH=tests .venv/bin/python benchmarks/remote_stream.py [--streams 64] [--seconds 5]

A process by script sends every stream an event each 20 ms, so that events come alone, as tokens do. This process reads them
three ways: bytes from a socket, bytes through httpx2, and events of requests through the client. Told is its processor time
per event.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import httpx2
import uvloop

from headway.core.clock import MonotonicClock
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.remote import RemoteEngineClient
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.flow.gradient import Gradient
from headway.flow.remote import RemoteGate
from headway.flow.remote_turns import RemoteTurns
from support.scripted_upstream import DONE, HEAD, Asked, Write, chunk, upstream

INTERVAL_S = 0.02


def serve(pipe: Connection, num_events: int) -> None:
    async def script(_: Asked, write: Write) -> None:
        await write(HEAD)
        for _event in range(num_events - 1):
            await write(chunk(7))
            await asyncio.sleep(INTERVAL_S)
        await write(chunk(7, reason="length") + DONE)

    async def run() -> None:
        async with upstream(script) as server:
            pipe.send(server.url)
            await asyncio.Future()

    uvloop.run(run())


async def by_socket(url: str, num_events: int) -> None:
    del num_events
    port = int(url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"stream": true, "prompt": [1]}'
    writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    while await reader.read(65536):
        pass
    writer.close()


async def measure(
    name: str, read: Callable[[int], Awaitable[None]], num_streams: int, num_events: int
) -> None:
    await asyncio.gather(*(read(2) for _ in range(1)))
    start_s, start_ns = time.monotonic(), time.process_time_ns()
    await asyncio.gather(*(read(i) for i in range(num_streams)))
    used_us = (time.process_time_ns() - start_ns) / 1000
    print(
        f"{name:>8}: {used_us / num_streams / num_events:6.1f} µs an event, {time.monotonic() - start_s:.1f} s"
    )


async def run(url: str, num_streams: int, num_events: int) -> None:
    await measure("socket", lambda _: by_socket(url, num_events), num_streams, num_events)
    async with httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as client:

        async def by_httpx2(_: int) -> None:
            body = {"stream": True, "prompt": [1]}
            async with client.stream("POST", url + "/completions", json=body) as response:
                async for _piece in response.aiter_bytes():
                    pass

        await measure("httpx2", by_httpx2, num_streams, num_events)
    clock = MonotonicClock()
    places = Gradient(limit=num_streams, min_limit=num_streams)
    engine = RemoteEngineClient(
        RemoteConfig(model="m", url=url),
        RemoteText(vocab_size=50),
        clock,
        RemoteTurns(RemoteGate(clock, gradient=places, lend_high="idle"), max_waiting_tokens=10**6),
    )
    await engine.start()

    async def by_client(number: int) -> None:
        request = Request(
            request_id=str(time.monotonic_ns()) + str(number),
            token_ids=(1,),
            sampling=SamplingParams(),
            max_tokens=num_events,
        )
        async for _events in engine.submit_nowait(request):
            pass

    await measure("client", by_client, num_streams, num_events)
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    num_events = round(args.seconds / INTERVAL_S)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, num_events), daemon=True
    )
    server.start()
    uvloop.run(run(ours.recv(), args.streams, num_events))
    server.terminate()


if __name__ == "__main__":
    main()
