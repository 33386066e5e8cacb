"""Several loads at once: each in its own name, from one zero, and every record says whose it is."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.progress import LoadPlan
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from headway.lab.stream_table import with_streams
from headway.lab.streams import Together

pytestmark = pytest.mark.anyio

_EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(_EVENTS)
    + _EVENTS
)
_REFUSAL = b'{"error": {"message": "too many wait", "code": "queue_full"}}'
_REFUSED = b"HTTP/1.1 503 Not Now\r\nContent-Length: %d\r\n\r\n" % len(_REFUSAL) + _REFUSAL


@dataclass
class Server:
    """A server that answers at once, refuses tenant `unwelcome`, or never answers; and the headers it was sent."""

    port: int
    answers: bool = True
    heads: list[dict[str, str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def options(self, *tables: Mapping[str, object], **asked: object) -> RunOptions:
        endpoint = Endpoint(host="127.0.0.1", port=self.port, path="/v1")
        return with_streams(RunOptions(endpoint=endpoint, model="m", **asked), tables)  # type: ignore[arg-type]

    def sent(self, name: str) -> list[str | None]:
        return [head.get(name) for head in self.heads]


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                head = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                if lines[0].startswith("GET "):  # metrics
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                await reader.readexactly(int(head["content-length"]))
                server.heads.append(head)
                server.asked.set()
                if server.answers:
                    writer.write(_REFUSED if head.get("x-headway-tenant") == "unwelcome" else _ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        server = Server(listening.sockets[0].getsockname()[1])
        yield server


async def test_each_stream_asks_in_its_own_name_and_is_told_apart() -> None:
    async with serving() as server:
        plans: list[LoadPlan] = []
        found = await measure(
            server.options(
                {"name": "chat", "arrival": "constant:400", "requests": 8, "class": "high", "tenant": "t1"},
                {"name": "scan", "workload": "multi-turn:3", "lines": 5, "requests": 6, "sessions": True},
                {"name": "spam", "arrival": "closed:2", "requests": 4, "tenant": "unwelcome"},
                slo=parse_slo("ttft=10s"),
            ),
            on_start=plans.append,
        )
    assert plans[0].num_requests == 18
    summary = found.summary
    assert (summary.num_offered, summary.num_ok, found.arrival) == (18, 14, "together")
    assert sorted(summary.by_stream) == ["chat", "scan", "spam"]
    parts = summary.by_stream
    assert [part.admission.num_offered for part in parts.values()] == [8, 6, 4]
    assert [part.admission.num_admitted for part in parts.values()] == [8, 6, 0]
    assert parts["spam"].admission.refusals == {(503, "queue_full"): 4}
    assert parts["spam"].failures == {"refused_503": 4}
    goodputs = [part.goodput and part.goodput.fraction for part in parts.values()]
    assert goodputs == [1, 1, 0]
    assert sorted(filter(None, server.sent("x-headway-class"))) == ["high"] * 8
    assert server.sent("x-headway-tenant").count("t1") == 8
    sessions = [session for session in server.sent("x-headway-session") if session]
    assert sorted(sessions) == ["lab-scan-1-0"] * 3 + ["lab-scan-1-1"] * 3


async def test_all_begin_at_one_zero_and_no_conversation_is_anothers() -> None:
    async with serving() as server:
        found = await measure(
            server.options(
                {"name": "a", "arrival": "constant:500", "requests": 5},
                {"name": "b", "arrival": "constant:500", "requests": 5},
                {"name": "c", "arrival": "closed:2", "requests": 5},
            )
        )
    firsts = [
        min(each.stamps.intended_ns for each in found.exchanges if each.stream == name) for name in "abc"
    ]
    assert firsts == [found.start_ns] * 3
    assert len({each.conversation for each in found.exchanges}) == 15
    ends = [each.stamps.ended_ns for each in found.exchanges]
    assert ends == sorted(ends)


async def test_what_one_stream_sends_does_not_depend_on_the_others() -> None:
    alone = {"name": "a", "arrival": "poisson:300", "requests": 12, "seed": 4}

    def told(found: RunResult) -> list[tuple[str, int]]:
        assert found.start_ns is not None
        return sorted(
            (each.label, each.stamps.intended_ns - found.start_ns)
            for each in found.exchanges
            if each.stream == "a"
        )

    async with serving() as server:
        first = await measure(server.options(alone))
        second = await measure(server.options({"name": "z", "arrival": "closed:3"}, alone))
    assert told(first) == told(second)


async def test_a_run_after_another_skips_what_that_one_sent() -> None:
    async with serving() as server:
        runs = [
            await measure(
                server.options({"name": "a", "arrival": "poisson:300", "requests": 8, "skip": skip})
            )
            for skip in (0, 8)
        ]
    starts = []
    for run in runs:
        assert run.start_ns is not None
        starts.append([each.stamps.intended_ns - run.start_ns for each in run.exchanges])
    assert starts[0] != starts[1]


async def test_a_stream_that_cannot_be_made_ends_them_all() -> None:
    async with serving() as server:
        options = server.options(
            {"name": "a"}, {"name": "b", "workload": "medium", "lines": 1_000_000, "requests": 2}
        )
        with pytest.raises(ConfigError, match="used up"):
            await measure(options)
        assert server.heads == []


async def test_an_interrupted_run_tells_what_was_over() -> None:
    async with serving() as server:
        options = server.options(
            {"name": "quick", "tenant": "unwelcome", "arrival": "constant:1000", "requests": 3},
            {"name": "stuck", "arrival": "closed:1", "duration_s": 60},
        )
        seen = asyncio.Event()
        running = asyncio.create_task(measure(options, lambda _: seen.set()))
        await seen.wait()
        server.answers = False
        server.asked.clear()
        await server.asked.wait()
        running.cancel()
        found = await running
    assert found.interrupted
    assert found.summary.num_offered >= 1


async def test_nobody_starts_before_the_last_is_ready() -> None:
    together = Together(2)
    first = asyncio.create_task(together())
    await asyncio.sleep(0)
    assert not first.done()
    assert await together() == await first
