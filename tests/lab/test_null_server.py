"""The server that measures clients: it keeps its schedule, never writes early, and lets go of clients that leave."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headway.lab.connection import Response, connect
from headway.lab.null_server import NullServer, Schedule
from headway.lab.pacer import Pacer

pytestmark = pytest.mark.anyio

MS = 1_000_000
LONG_S = 60.0
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def serving(schedule: Schedule) -> AsyncIterator[tuple[int, Pacer]]:
    """Give the port of a server, and what paces it."""
    with Pacer() as pacer:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(NullServer(schedule, pacer).protocol, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1], pacer


def events(response: Response) -> list[str]:
    lines = bytes(response.body).decode().split("\n\n")
    assert lines.pop() == ""
    return [line.removeprefix("data: ") for line in lines]


def token_stamps(response: Response) -> list[int]:
    stamps, body = [], bytes(response.body)
    at = body.find(b'" x"')
    while at >= 0:
        stamps.append(response.stamp_of(body.index(b"\n\n", at) + 1))
        at = body.find(b'" x"', at + 1)
    return stamps


async def test_an_answer_is_a_stream_of_chat_chunks() -> None:
    async with serving(Schedule(ttft_ns=0, itl_ns=0, num_tokens=3)) as (port, _):
        connection = await connect("127.0.0.1", port)
        response = await connection.request(REQUEST, silence_s=LONG_S)
        connection.close()
    assert (response.end, response.status) == ("complete", 200)
    *chunks, done = events(response)
    assert done == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    assert [chunk["choices"][0]["delta"] for chunk in parsed[:-1]] == [
        {"role": "assistant", "content": ""},
        *[{"content": " x"}] * 3,
    ]
    assert parsed[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


async def test_what_is_no_question_is_not_found() -> None:
    async with serving(Schedule(ttft_ns=0, itl_ns=0, num_tokens=1)) as (port, _):
        connection = await connect("127.0.0.1", port)
        get = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await connection.request(get, silence_s=LONG_S)).status == 404
        assert (await connection.request(REQUEST, silence_s=LONG_S)).status == 200  # on the same connection
        connection.close()


async def test_no_token_is_early_on_any_of_many_streams() -> None:
    schedule = Schedule(ttft_ns=10 * MS, itl_ns=5 * MS, num_tokens=8)
    async with serving(schedule) as (port, _):
        connections = [await connect("127.0.0.1", port) for _ in range(20)]
        for _ in range(2):  # on the same connections
            asked = [connection.request(REQUEST, silence_s=LONG_S) for connection in connections]
            for response in await asyncio.gather(*asked):
                stamps = token_stamps(response)
                assert len(stamps) == 8
                assert response.first_byte_ns is not None
                # The server's clock starts between these two.
                for number, stamp_ns in enumerate(stamps):
                    assert stamp_ns >= response.written_ns + schedule.due_ns(number) - MS // 2
        for connection in connections:
            connection.close()


async def test_a_client_that_leaves_is_let_go() -> None:
    async with serving(Schedule(ttft_ns=0, itl_ns=MS, num_tokens=1_000_000)) as (port, pacer):
        connection = await connect("127.0.0.1", port)
        task = asyncio.create_task(connection.request(REQUEST, silence_s=LONG_S))
        while len(pacer) == 0:  # noqa: ASYNC110  # nothing announces that the answer has begun
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        while len(pacer) > 0:  # noqa: ASYNC110  # the answer would go on for a quarter of an hour
            await asyncio.sleep(0)


async def test_what_is_no_request_closes_the_connection() -> None:
    async with serving(Schedule(ttft_ns=0, itl_ns=0, num_tokens=1)) as (port, _):
        connection = await connect("127.0.0.1", port)
        response = await connection.request(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n", silence_s=LONG_S)
        assert (response.end, response.first_byte_ns) == ("closed", None)


def test_as_a_command_it_serves_until_its_input_ends() -> None:
    command = [
        sys.executable,
        "-m",
        "headway.lab.null_server",
        "--ttft-ms",
        "0",
        "--itl-ms",
        "0",
        "--tokens",
        "2",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None

        async def ask(port: int) -> Response:
            connection = await connect("127.0.0.1", port)
            response = await connection.request(REQUEST, silence_s=LONG_S)
            connection.close()
            return response

        response = asyncio.run(ask(int(process.stdout.readline())))
        assert len(token_stamps(response)) == 2
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("arguments", [["--tokens", "0"], ["--itl-ms", "-1"]])
def test_what_is_no_schedule_is_refused(arguments: list[str]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "headway.lab.null_server", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert "at least one token" in found.stderr
