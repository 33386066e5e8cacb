"""Both halves of a resumable stream over real sockets: our client, and a server that keeps to docs/streams.md on a log."""

import asyncio
import json
import random
from collections.abc import Sequence
from urllib.parse import parse_qs

import pytest
from starlette.types import Receive, Scope, Send

from headway.client import Answer, AnswerCut, CallError, Client, Deadlines, Endpoint
from headway.core.errors import HeadwayError
from headway.streams.follower import Follower
from headway.streams.ids import START, Cursor, event_id, new_stream_id, parse_after
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from headway.streams.record import Entry, Lease, attach
from headway.wire.errors import error_body
from headway.wire.sse import numbered
from headway.wire.stream_messages import read_ack
from support.endpoint_scripts import say
from support.live_server import live_server
from support.scripted_stream import chat
from support.stream_logs import WallClock

OWNER = "tok_1"


class Cut(Exception):
    """The connection breaks."""


class Gateway:
    """Streams `words`. `cuts`: after how many events each connection breaks; then they live. `gone_at`: as many events
    after which the stream expires.
    """

    def __init__(
        self,
        words: Sequence[str],
        cuts: Sequence[int] = (),
        limits: StreamLimits | None = None,
        *,
        expires: bool = False,
    ) -> None:
        self.words = words
        self.log = MemoryLog(limits or StreamLimits(), WallClock())
        self.acked: list[int] = []
        self.num_deleted = 0
        self._cuts = list(cuts)
        self._expires = expires
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        path: str = scope["path"]
        try:
            match scope["method"], path.removeprefix("/v1/").split("/"):
                case "POST", ["chat", "completions"]:
                    await self._stream(await self._begin(), START, send)
                case "GET", ["streams", stream_id]:
                    (after,) = parse_qs(scope["query_string"].decode())["after"]
                    assert (b"last-event-id", f"{stream_id}.{after}".encode()) in scope["headers"]
                    await self._stream(stream_id, parse_after(after), send)
                case "POST", ["streams", stream_id, "ack"]:
                    position = read_ack(body)
                    self.acked.append(position.seq)
                    await self.log.ack(stream_id, position.epoch, position.seq)
                    await answer(send, 204, b"")
                case "DELETE", ["streams", stream_id]:
                    self.num_deleted += 1
                    await self.log.remove(stream_id)
                    await answer(send, 204, b"")
        except HeadwayError as error:
            fields = error_body(error).error
            told = {"message": fields.message, "type": fields.type, "code": fields.code}
            await answer(send, error.status, json.dumps({"error": told}).encode())
        except Cut:
            return  # uvicorn closes a connection whose response was not completed

    async def _begin(self) -> str:
        stream_id = new_stream_id(random.randbytes)
        lease = await self.log.create(stream_id, OWNER, b"")
        task = asyncio.ensure_future(self._generate(lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return stream_id

    async def _generate(self, lease: Lease) -> None:
        pieces = [*map(say, self.words), chat("stop")]
        entries = [Entry("content", piece.removeprefix(b"data: ").rstrip()) for piece in pieces]
        after = 0
        with self.log.room.subscribe(lease.stream_id) as room:
            for start in range(0, len(entries), 3):
                while True:
                    last = await self.log.append(lease, after, entries[start : start + 3])
                    if last is not None:
                        break
                    await room.wait()
                after = last
                await asyncio.sleep(0)
        await self.log.append(lease, after, [Entry("control", b"[DONE]")], end="ended")

    async def _stream(self, stream_id: str, cursor: Cursor, send: Send) -> None:
        record = await self.log.find(stream_id)
        after = attach(record, OWNER, cursor)
        assert record is not None
        left = self._cuts.pop(0) if self._cuts else None
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with Follower(self.log, stream_id, record.epoch, after) as follower:
            complete = False
            while not complete:
                page = await follower.next_page()
                complete = page.complete
                for event in page.events:
                    if left == 0:
                        if self._expires and not self._cuts:
                            await self.log.remove(stream_id)
                        raise Cut
                    left = None if left is None else left - 1
                    name = event_id(stream_id, Cursor(record.epoch, event.seq))
                    data = numbered(name, event.entry.data)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def call(gateway: Gateway) -> tuple[Answer | CallError, str]:
    async def main(url: str) -> tuple[Answer | CallError, str]:
        endpoint = Endpoint(url=url, model="m", resumable=True)
        deadlines = Deadlines(first_token_s=60, total_s=60)
        async with (
            Client([endpoint], deadlines=deadlines) as client,
            client.stream([{"role": "user", "content": "hi"}]) as stream,
        ):
            try:
                ended: Answer | CallError = await stream.collect()
            except CallError as error:
                ended = error
            return ended, stream.text

    with live_server(gateway) as (host, port):
        return asyncio.run(main(f"http://{host}:{port}"))


@pytest.mark.parametrize("seed", range(8))
def test_the_clients_text_is_the_engines_wherever_connections_break(seed: int) -> None:
    draws = random.Random(seed)
    words = [f"{number} " for number in range(draws.randrange(1, 60))]
    cuts = [draws.randrange(1, 8) for _ in range(draws.randrange(8))]
    num_cuts, left = 0, len(words) + 2
    for cut in cuts:
        num_cuts += left > cut
        left -= cut if left > cut else left
    gateway = Gateway(words, cuts)
    ended, text = call(gateway)
    assert isinstance(ended, Answer), ended
    assert ended.text == text == "".join(words)
    assert ended.num_resumes == num_cuts
    assert gateway.num_deleted == 0


def test_a_stream_that_expired_meanwhile_is_an_error() -> None:
    ended, text = call(Gateway(["a "] * 50, [5, 5], expires=True))
    assert type(ended) is AnswerCut
    assert (ended.code, text) == ("resync_required", "a " * 10)


def test_a_log_smaller_than_the_answer_is_emptied_by_acknowledgements() -> None:
    gateway = Gateway(["a"] * 5000, limits=StreamLimits(max_events=1200))
    ended, text = call(gateway)
    assert isinstance(ended, Answer), ended
    assert text == "a" * 5000
    assert len(gateway.acked) >= 3
