"""A resumable stream in a file goes on after `kill -9` of whoever computed it, as if nothing had happened."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from headway.wire.sse_reader import SseEvent, SseReader
from support.real_server import LIMIT_S, RealServer, eventually, parse, real_server, wait_for_engine
from support.redis_server import needs_redis, redis_server
from support.tiny_gguf import write_tiny_gguf

BODY = {
    "prompt": "def f",
    "stream": True,
    "temperature": 0.8,
    "seed": 7,
    "ignore_eos": True,
    "max_tokens": 3000,
}


@contextmanager
def events_of(server: RealServer, method: str, path: str, **options: object) -> Iterator[Iterator[SseEvent]]:
    """Ask; yield the iterator of what comes. Leaving closes the connection."""
    with httpx2.stream(method, server.url + path, timeout=LIMIT_S, **options) as response:  # type: ignore[arg-type]
        assert response.status_code == 200, response.read()
        yield _read(response)


def _read(response: httpx2.Response) -> Iterator[SseEvent]:
    reader = SseReader()
    for part in response.iter_bytes():
        yield from reader.feed(part)


def text_of(events: list[SseEvent]) -> str:
    return "".join(
        choice["text"] for event in events for choice in parse(event.data.decode()).get("choices", ())
    )


def begin(server: RealServer, count: int) -> list[SseEvent]:
    headers = {"x-headway-resumable": "1"}
    with events_of(server, "POST", "/v1/completions", json=BODY, headers=headers) as events:
        return [next(events) for _ in range(count)]


def go_on(server: RealServer, events: list[SseEvent], count: int | None) -> None:
    """Read `count` more events, or all."""
    assert events[-1].id is not None
    last = events[-1].id.decode()
    stream = last.partition(".")[0]
    headers = {"last-event-id": last}
    with events_of(server, "GET", f"/v1/streams/{stream}", headers=headers) as more:
        events += list(more) if count is None else [next(more) for _ in range(count)]


@pytest.mark.parametrize("who", ["gateway", "engine", "everybody"])
def test_a_stream_has_no_seam_after_kill_9(tiny_model: Path, tmp_path: Path, who: str) -> None:
    options = ("--streams", str(tmp_path / "streams.sqlite"))
    with real_server(tiny_model, tmp_path, *options) as server:
        with events_of(server, "POST", "/v1/completions", json=BODY) as plain:
            expected = text_of(list(plain))
        events = begin(server, 9)
        if who == "engine":
            os.kill(server.engine_pid, signal.SIGKILL)
            go_on(server, events, 7)
            os.kill(wait_for_engine(server.process.pid), signal.SIGKILL)
            go_on(server, events, None)
        else:
            if who == "everybody":
                os.kill(server.engine_pid, signal.SIGKILL)
            server.signal(signal.SIGKILL)
            server.wait()
            with real_server(tiny_model, tmp_path, *options) as second:
                go_on(second, events, 5)
                go_on(second, events, None)
                assert eventually(second.is_idle)
    check_whole(events, expected)


@needs_redis
def test_of_two_gateways_either_reads_a_stream_and_one_goes_on_with_it_for_the_other(
    tiny_model: Path, tmp_path: Path
) -> None:
    with redis_server(tmp_path) as redis:
        options = ("--streams", redis.url)
        with (
            real_server(tiny_model, tmp_path, *options) as first,
            real_server(tiny_model, tmp_path, *options) as second,
        ):
            with events_of(second, "POST", "/v1/completions", json=BODY) as plain:
                expected = text_of(list(plain))
            events = begin(first, 9)
            go_on(second, events, 5)  # as the first one makes them
            go_on(first, events, 5)
            first.signal(signal.SIGKILL)
            first.wait()
            go_on(second, events, None)  # after the first one's lease, some seconds
            assert eventually(second.is_idle)
    check_whole(events, expected)


def check_whole(events: list[SseEvent], expected: str) -> None:
    assert text_of(events) == expected
    numbers = [event.id.rpartition(b".")[2] for event in events if event.id]
    assert numbers == [b"%d" % seq for seq in range(1, len(events) + 1)]
    assert events[-1].data == b"[DONE]"


def test_in_another_models_hands_a_stream_ends_with_an_error(tiny_model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    write_tiny_gguf(other, context=16384)
    name = ("--served-name", "the-model", "--streams", str(tmp_path / "streams.sqlite"))
    with real_server(tiny_model, tmp_path, *name) as server:
        events = begin(server, 9)
        server.signal(signal.SIGKILL)
        server.wait()
    with real_server(other, tmp_path, *name) as second:
        go_on(second, events, None)
    assert parse(events[-1].data.decode())["error"]["code"] == "resync_required"
