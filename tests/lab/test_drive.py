"""Loads against servers that keep a schedule, stall, refuse and break off: the records have every request, as it was."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from headway.core.errors import ConfigError
from headway.lab.chat_body import chat_body
from headway.lab.client import Client, Patience
from headway.lab.drive import Driver
from headway.lab.endpoint import Endpoint
from headway.lab.latency import ttft_ns
from headway.lab.null_server import NullServer, Schedule
from headway.lab.pacer import Pacer
from headway.lab.workload import Conversation, WorkloadRequest

pytestmark = pytest.mark.anyio

MS = 1_000_000
Answer = Callable[[asyncio.StreamWriter, dict[str, object]], Awaitable[None]]


def talks(num_turns: int = 1) -> Iterator[Conversation]:
    """Return endless conversations."""
    for number in itertools.count():
        turns = tuple(f"question {number}.{turn}" for turn in range(1, num_turns + 1))
        yield Conversation(number=number, user_turns=turns, max_output_tokens=8, label="test")


def body(request: WorkloadRequest) -> bytes:
    return chat_body(request, "m")


def endpoint(port: int) -> Endpoint:
    return Endpoint(host="127.0.0.1", port=port, path="/v1")


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Endpoint]:
    """Serve `answer` for every request, on connections that are kept open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await answer(writer, json.loads(await reader.readexactly(length)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield endpoint(server.sockets[0].getsockname()[1])


def stream(*texts: str, done: bool = True) -> bytes:
    deltas = [json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}) for text in texts]
    events = "".join(f"data: {event}\n\n" for event in [*deltas, *(["[DONE]"] if done else [])]).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(events)
    return head + events


def whole(status: str, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\n\r\n".encode()


async def test_an_open_load_starts_when_it_is_due() -> None:
    offsets = [0, 3 * MS, 3 * MS, 11 * MS, 20 * MS]
    with Pacer() as pacer:
        loop = asyncio.get_running_loop()
        schedule = Schedule(ttft_ns=5 * MS, itl_ns=2 * MS, num_tokens=4)
        async with await loop.create_server(NullServer(schedule, pacer).protocol, "127.0.0.1", 0) as server:
            with Client(endpoint(server.sockets[0].getsockname()[1])) as client:
                driver = Driver(client, body)
                await driver.open(offsets, talks())
    found = sorted(driver.offered.exchanges, key=lambda exchange: exchange.conversation)
    assert driver.offered.start_ns is not None
    assert [exchange.stamps.intended_ns - driver.offered.start_ns for exchange in found] == offsets
    for exchange in found:
        assert exchange.ok
        assert exchange.stamps.dispatched_ns >= exchange.stamps.intended_ns
        assert len(exchange.text_events) == 4
        told = ttft_ns(exchange)
        assert told is not None
        # What opening a connection took is not in the figure, and may be more than what the request waited for.
        assert told + exchange.stamps.setup_ns >= 5 * MS
    assert driver.offered.num_running == 0


async def test_everything_due_during_a_stall_shows_it() -> None:
    """The server reads nothing for 150 ms; what is due meanwhile waits for the rest of them, at least."""
    stalled_until_ns = 0

    async def answer(writer: asyncio.StreamWriter, request: dict[str, object]) -> None:  # noqa: ARG001
        nonlocal stalled_until_ns
        if not stalled_until_ns:  # the first request brings it about
            stalled_until_ns = time.monotonic_ns() + 150 * MS
        await pacer.sleep_until(stalled_until_ns)
        writer.write(stream("a"))

    with Pacer() as pacer:
        async with answering(answer) as target:
            with Client(target) as client:
                driver = Driver(client, body)
                await driver.open(range(0, 300 * MS, 10 * MS), talks())
    assert len(driver.offered.exchanges) == 30
    due_meanwhile = [each for each in driver.offered.exchanges if each.stamps.intended_ns < stalled_until_ns]
    assert len(due_meanwhile) >= 15
    for exchange in due_meanwhile:
        told = ttft_ns(exchange)
        assert told is not None
        waited_ns = stalled_until_ns - exchange.stamps.intended_ns
        assert told + exchange.stamps.setup_ns >= waited_ns


async def test_users_begin_when_their_last_is_over() -> None:
    at_once, most = 0, 0

    async def answer(writer: asyncio.StreamWriter, request: dict[str, object]) -> None:  # noqa: ARG001
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        writer.write(stream("a"))
        at_once -= 1

    async with answering(answer) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.closed(3, talks(), num_conversations=20)
            assert client.num_connections == 3
    assert len(driver.offered.exchanges) == 20
    assert most <= 3
    assert sorted(exchange.conversation for exchange in driver.offered.exchanges) == list(range(20))


async def test_users_stop_when_the_time_is_over() -> None:
    async with answering(lambda writer, _: _write(writer, stream("a"))) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.closed(2, talks(), duration_ns=30 * MS)
    assert driver.offered.start_ns is not None
    starts = [exchange.stamps.intended_ns - driver.offered.start_ns for exchange in driver.offered.exchanges]
    assert starts
    assert max(starts) < 30 * MS


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)


async def test_users_who_are_refused_wait_longer_each_time() -> None:
    async with answering(lambda writer, _: _write(writer, whole("503 Service Unavailable"))) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(), duration_ns=300 * MS)
    # 10, 20, 40, 80, 160 ms apart
    assert 2 <= len(driver.offered.exchanges) <= 6


async def test_a_load_ends_where_nothing_more_can_be_made() -> None:
    def few() -> Iterator[Conversation]:
        yield from itertools.islice(talks(), 5)
        raise ConfigError("The code is used up.")

    async with answering(lambda writer, _: _write(writer, stream("a"))) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.closed(2, few(), num_conversations=9)
    assert driver.offered.ended_early == "The code is used up."
    assert len(driver.offered.exchanges) == 5


async def test_a_server_that_closes_new_connections_at_once_is_a_failure_and_no_error() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        with Client(endpoint(server.sockets[0].getsockname()[1])) as client:
            driver = Driver(client, body)
            await driver.open([0] * 40, talks())
    assert {each.answer.failure and each.answer.failure.label for each in driver.offered.exchanges} == {
        "connection"
    }


async def test_a_conversation_goes_on_with_the_answers_it_got() -> None:
    asked: list[object] = []

    async def answer(writer: asyncio.StreamWriter, request: dict[str, object]) -> None:
        asked.append(request["messages"])
        writer.write(stream("ans", f"wer {len(asked)}"))

    async with answering(answer) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.open([0], talks(num_turns=3))
    assert [exchange.turn for exchange in driver.offered.exchanges] == [1, 2, 3]
    assert asked[2] == [
        {"role": "user", "content": "question 0.1"},
        {"role": "assistant", "content": "answer 1"},
        {"role": "user", "content": "question 0.2"},
        {"role": "assistant", "content": "answer 2"},
        {"role": "user", "content": "question 0.3"},
    ]
    first, second, _ = driver.offered.exchanges
    assert first.stamps.ended_ns <= second.stamps.intended_ns <= second.stamps.dispatched_ns


async def test_failures_are_kept_by_kind_and_end_their_conversation() -> None:
    answers = iter(
        [
            stream("a"),
            whole("429 Too Many Requests", "Retry-After: 7\r\n"),
            whole("500 Internal Server Error"),
            b"no HTTP at all\r\n\r\n",
            stream("cut", done=False),
        ]
    )
    async with answering(lambda writer, _: _write(writer, next(answers))) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(num_turns=2), num_conversations=4)
    failures = [exchange.answer.failure for exchange in driver.offered.exchanges]
    assert [failure and failure.label for failure in failures] == [
        None,
        "refused_429",
        "status_500",
        "garbage",
        "closed",
    ]
    assert failures[1] is not None
    assert failures[1].retry_after_s == 7
    assert driver.offered.num_unsent_turns == 3


async def test_a_connection_closed_as_it_was_used_again_fails_no_request() -> None:
    """llama-server promises to keep a connection and closes it after every stream."""
    num_asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_asked
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        num_asked += 1
        writer.write(stream("a"))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        with Client(endpoint(server.sockets[0].getsockname()[1])) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(), num_conversations=5)
    assert all(exchange.ok for exchange in driver.offered.exchanges)
    assert num_asked == len(driver.offered.exchanges) == client.num_connections == 5


async def test_a_new_connection_that_is_closed_without_an_answer_fails_its_request() -> None:
    num_asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_asked
        await reader.readuntil(b"\r\n\r\n")
        num_asked += 1
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        with Client(endpoint(server.sockets[0].getsockname()[1])) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(), num_conversations=3)
    failures = [exchange.answer.failure for exchange in driver.offered.exchanges]
    assert [failure and failure.kind for failure in failures] == ["connection"] * 3
    assert num_asked == 3


async def test_silence_and_nobody_there_are_failures_too() -> None:
    async def silent(writer: asyncio.StreamWriter, request: dict[str, object]) -> None: ...

    async with answering(silent) as target:
        with Client(target, Patience(silence_s=0.03)) as client:
            driver = Driver(client, body)
            await driver.open([0], talks())
    with Client(target) as client:
        await Driver(client, body, driver.offered.exchanges.append).open([0], talks())
    labels = [
        exchange.answer.failure and exchange.answer.failure.label for exchange in driver.offered.exchanges
    ]
    assert labels == ["silence", "connection"]


async def test_a_cancelled_load_leaves_what_was_over() -> None:
    forever = asyncio.Event()
    answered = 0

    async def answer(writer: asyncio.StreamWriter, request: dict[str, object]) -> None:  # noqa: ARG001
        nonlocal answered
        answered += 1
        if answered > 3:
            forever.set()
            return
        writer.write(stream("a"))

    async with answering(answer) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            task = asyncio.create_task(driver.closed(1, talks(), num_conversations=9))
            await forever.wait()
            task.cancel()
            await asyncio.wait({task})
    assert len(driver.offered.exchanges) == 3
    assert driver.offered.num_running == 0


async def test_a_load_that_cannot_begin_ends_with_the_error_of_what_could_not_be_made() -> None:
    def exhausted() -> Iterator[Conversation]:
        yield from itertools.islice(talks(), 1)
        raise ConfigError("The code is used up.")

    async with answering(lambda writer, _: _write(writer, stream("a"))) as target:
        with Client(target) as client:
            driver = Driver(client, body)
            with pytest.raises(ConfigError, match="used up"):
                await driver.closed(2, exhausted(), num_conversations=9)


async def test_a_load_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="without an end"), Client(endpoint(1)) as client:
        await Driver(client, body).closed(1, talks())
