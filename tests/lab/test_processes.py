"""A load spread over processes is the same load, and nothing of them is left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from headway.core.errors import InternalError
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.model_list import ServedModel
from headway.lab.processes import ProcessLoader
from headway.lab.run_options import RunOptions
from headway.lab.sample import Sample
from headway.lab.traffic import plan_traffic, shares

pytestmark = pytest.mark.anyio

_EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(_EVENTS)
    + _EVENTS
)


@dataclass
class Recorded:
    """A server that answers at once, or never, and what it was sent."""

    options: RunOptions
    bodies: list[bytes] = field(default_factory=list)
    answers: bool = True
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def recording(**asked: object) -> AsyncIterator[Recorded]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET "):  # the list of models, metrics
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                recorded.bodies.append(await reader.readexactly(length))
                recorded.asked.set()
                if recorded.answers:
                    writer.write(_ANSWER)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        endpoint = Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")
        recorded = Recorded(RunOptions(endpoint=endpoint, model="m", **asked))  # type: ignore[arg-type]
        yield recorded


@pytest.mark.parametrize(
    "asked",
    [
        {"arrival": "poisson:400", "num_requests": 30},
        {"arrival": "closed:5", "num_requests": 17},
        {"arrival": "closed:2", "num_requests": 5, "workload": "multi-turn:3"},
        {"arrival": "constant:200", "num_requests": 12, "workload": "mixed:light=1,shared-prefix:2:3=1"},
    ],
)
async def test_several_processes_send_what_one_does(asked: dict[str, object]) -> None:
    found: list[RunResult] = []
    sent: list[list[bytes]] = []
    for count in (1, 2, 3):
        async with recording(**asked) as server:
            found.append(await measure(replace(server.options, num_processes=count)))
            sent.append(sorted(server.bodies))
    assert sent[0] == sent[1] == sent[2]
    assert len(sent[0]) == found[0].summary.num_ok
    conversations = [sorted(each.conversation for each in run.exchanges) for run in found]
    assert conversations[0] == conversations[1] == conversations[2]
    if asked["arrival"] != "closed:5":
        return
    ends = [exchange.stamps.ended_ns for exchange in found[2].exchanges]
    assert ends == sorted(ends)


async def test_starts_are_those_of_one_process() -> None:
    offsets = []
    for count in (1, 2):
        async with recording(arrival="poisson:300", num_requests=20) as server:
            found = await measure(replace(server.options, num_processes=count))
        assert found.start_ns is not None
        offsets.append(sorted(each.stamps.intended_ns - found.start_ns for each in found.exchanges))
    assert offsets[0] == offsets[1]


async def test_samples_come_while_it_runs_and_all_of_them() -> None:
    samples: list[Sample] = []
    async with recording(arrival="closed:4", num_requests=50, num_processes=2) as server:
        found = await measure(server.options, samples.append)
    assert len(samples) == 50
    assert sorted(sample.ended_ns for sample in samples) == sorted(
        exchange.stamps.ended_ns for exchange in found.exchanges
    )


async def test_a_cancelled_run_tells_what_was_over() -> None:
    async with recording(arrival="closed:4", num_requests=1_000_000, num_processes=2) as server:
        enough = asyncio.Event()
        task = asyncio.create_task(measure(server.options, lambda _: enough.set()))
        await enough.wait()
        task.cancel()
        found = await task
    assert found.interrupted
    assert found.summary.num_ok >= 1


async def test_a_run_cancelled_before_anything_was_over_is_cancelled() -> None:
    async with recording(arrival="closed:4", num_requests=9, num_processes=2) as server:
        server.answers = False
        task = asyncio.create_task(measure(server.options))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_a_process_cannot_do_is_told() -> None:
    async with recording(
        workload="context:64k", arrival="closed:2", num_requests=10_000, output_tokens=1, num_processes=2
    ) as server:
        found = await measure(server.options)
    assert "code" in (found.ended_early or "")
    assert found.summary.num_ok >= 1


async def test_a_process_that_dies_ends_the_run() -> None:
    async with recording(arrival="closed:2", num_requests=4, num_processes=2) as server:
        server.answers = False
        traffic = await plan_traffic(server.options).for_model(ServedModel(name="m"))
        async with ProcessLoader(traffic, lambda _: None, 2) as loader:
            load = asyncio.create_task(loader.closed(2, num_conversations=4, duration_ns=None))
            await server.asked.wait()
            pid = loader.pids[0]
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(InternalError, match="ended by itself"):
                await load
            pids = loader.pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("total", "count", "expected"), [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (4, 2, [2, 2])]
)
def test_shares_add_up(total: int, count: int, expected: list[int]) -> None:
    assert shares(total, count) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 1),
        ({"arrival": "closed:8"}, 1),
        ({"arrival": "closed:100000"}, len(os.sched_getaffinity(0))),
        ({"arrival": "poisson:100000"}, len(os.sched_getaffinity(0))),
        ({"arrival": "poisson:5"}, 1),
        ({"arrival": "poisson:5", "num_processes": 7}, 7),
        ({"arrival": "closed:3", "num_processes": 7}, 3),
    ],
)
def test_no_more_processes_than_the_load_takes(asked: dict[str, object], expected: int) -> None:
    nobody = RunOptions(endpoint=Endpoint(host="127.0.0.1", port=1, path="/v1"), **asked)  # type: ignore[arg-type]
    assert plan_traffic(nobody).num_processes() == expected
