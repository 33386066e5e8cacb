"""Behind nginx as it comes, and with what docs/streams.md adds: events are not held back, and what it cuts goes on.

Nothing is timed: where an event must have come through, the server has nothing more to give until the client has it.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.sync.client import connect

from headway.client import Client, Deadlines, Endpoint
from headway.engine.request_table import EVENTS_AT_ONCE
from headway.streams.limits import StreamLimits
from headway.wire.sse_reader import SseEvent
from support.gateway_app import MODEL
from support.held_server import HeldServer, held_server
from support.proxies import Nginx, curl, needs_curl, needs_nginx, nginx
from support.real_server import LIMIT_S, RealServer, eventually, parse

pytestmark = [pytest.mark.native, needs_nginx]

BARE = "server {{ listen {{port}}{http2}; location / {{ proxy_pass http://127.0.0.1:{upstream};{more} }} }}"
PASS_ON = " proxy_pass_header X-Accel-Buffering;"
HTTP1 = ("--http1.1",)
HTTP2 = ("--http2-prior-knowledge",)
RESUMABLE = ("--header", "X-Headway-Resumable: 1")
BODY = {"prompt": "def f", "stream": True, "temperature": 0.8, "seed": 7, "ignore_eos": True}


def bare(upstream: int, *, http2: bool = False, more: str = "") -> str:
    """A server with all of nginx's defaults."""
    return BARE.format(upstream=upstream, http2=" http2" if http2 else "", more=more)


def documented(upstream: int) -> str:
    """The servers that docs/streams.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
    block = re.search(r"```nginx\n(.*?)```", page, re.DOTALL)
    assert block is not None
    servers = block[1].replace("listen 8080;", "listen {port};")
    assert servers.count("127.0.0.1:8000;") == servers.count("{port}") == 1
    return servers.replace("127.0.0.1:8000;", f"127.0.0.1:{upstream};")


def post(body: dict[str, object], *options: str) -> tuple[str, ...]:
    return ("--json", json.dumps(body), *options)


def events_of(parts: Iterator[SseEvent | str]) -> Iterator[SseEvent]:
    return (part for part in parts if isinstance(part, SseEvent))


def text_of(events: list[SseEvent]) -> str:
    return "".join(
        choice["text"] for event in events for choice in parse(event.data.decode()).get("choices", ())
    )


def first_and_rest(held: HeldServer, url: str, *options: str) -> None:
    """Each event arrives before there is another."""
    body: dict[str, object] = {"prompt": "hi", "stream": True, "max_tokens": 20}
    with curl(f"{url}/v1/completions", *post(body, *options)) as parts:
        events = events_of(parts)
        held.wait_request()
        for letter in "abc":
            held.emit(letter.encode())
            assert text_of([next(events)]) == letter
        held.finish()
        *_, last = events
        assert last.data == b"[DONE]"


@needs_curl
@pytest.mark.parametrize("options", [HTTP1, HTTP2], ids=["http1", "http2"])
@pytest.mark.parametrize("asked", [(), RESUMABLE], ids=["plain", "resumable"])
def test_no_event_is_held_back(tmp_path: Path, options: tuple[str, ...], asked: tuple[str, ...]) -> None:
    with held_server() as held, nginx(tmp_path, bare(held.port, http2=options == HTTP2)) as proxy:
        first_and_rest(held, f"http://127.0.0.1:{proxy.ports[0]}", *options, *asked)


@needs_curl
def test_no_event_is_held_back_by_what_the_guide_shows(tmp_path: Path) -> None:
    with held_server() as held, nginx(tmp_path, documented(held.port)) as proxy:
        first_and_rest(held, f"http://127.0.0.1:{proxy.ports[0]}", *HTTP1)


@needs_curl
def test_no_event_is_held_back_by_two_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    with (
        held_server() as held,
        nginx(tmp_path, bare(held.port, more=PASS_ON)) as inner,
        nginx(tmp_path / "outer", bare(inner.ports[0], http2=True)) as outer,
    ):
        first_and_rest(held, f"http://127.0.0.1:{outer.ports[0]}", *HTTP2)


@needs_curl
@pytest.mark.parametrize("options", [HTTP1, HTTP2], ids=["http1", "http2"])
def test_comments_pass_while_nothing_happens(tmp_path: Path, options: tuple[str, ...]) -> None:
    with held_server(ping_s=0.01) as held, nginx(tmp_path, bare(held.port, http2=options == HTTP2)) as proxy:
        body: dict[str, object] = {"prompt": "hi", "stream": True, "max_tokens": 20}
        url = f"http://127.0.0.1:{proxy.ports[0]}/v1/completions"
        with curl(url, *post(body, *options, *RESUMABLE)) as parts:
            assert next(parts) == next(parts) == ": ping\n"
            held.wait_request()
            held.emit(b"a")
            events = events_of(parts)
            assert text_of([next(events)]) == "a"
            held.finish()
            assert [event.data for event in events][-1] == b"[DONE]"


def whole_text(server: RealServer, **fields: object) -> str:
    """What an undisturbed client reads, without a proxy."""
    answer = server.complete(**{**BODY, "stream": False, **fields})  # type: ignore[arg-type]
    return str(answer.json()["choices"][0]["text"])


def number(event: SseEvent) -> int:
    assert event.id is not None
    return int(event.id.rpartition(b".")[2])


@needs_curl
@pytest.mark.parametrize("options", [HTTP1, HTTP2], ids=["http1", "http2"])
def test_what_the_proxy_cuts_goes_on_through_it(
    shared_server: RealServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The answer is longer than its log, so that it cannot end before the test acknowledges what it read."""
    most = StreamLimits().max_events
    nearly_full = most - EVENTS_AT_ONCE  # events that come together go in together, or wait together
    body = {**BODY, "max_tokens": 2 * most}
    with nginx(tmp_path, bare(shared_server.port, http2=options == HTTP2)) as proxy:
        url = f"http://127.0.0.1:{proxy.ports[0]}"
        with curl(f"{url}/v1/completions", *post(body, *options, *RESUMABLE)) as parts:
            events = [next(events_of(parts))]
            proxy.kill_worker()
            events += events_of(parts)
        assert events[0].id is not None
        stream = f"/v1/streams/{events[0].id.partition(b'.')[0].decode()}"
        with curl(f"{url}{stream}", *options, *going_on(events)) as parts:
            events.append(next(events_of(parts)))
            proxy.kill_worker()
            events += events_of(parts)
        with curl(f"{url}{stream}", *options, *going_on(events)) as parts:
            more = events_of(parts)
            while number(events[-1]) < nearly_full:
                events.append(next(more))
            with curl(f"{shared_server.url}{stream}?after=0") as kept:
                assert events == [event for _, event in zip(events, events_of(kept), strict=False)]
            with curl(f"{url}{stream}/ack", *post({"seq": number(events[-1])}, *options)) as answer:
                assert list(answer) == []
            events += more
    assert [number(event) for event in events] == list(range(1, len(events) + 1))
    assert len(events) > most
    assert events[-1].data == b"[DONE]"


def going_on(events: list[SseEvent]) -> tuple[str, str]:
    """Ask for what follows."""
    last = events[-1].id
    assert last is not None
    return ("--header", f"Last-Event-ID: {last.decode()}")


def test_the_client_goes_on_by_itself(tmp_path: Path) -> None:
    async def answer(held: HeldServer, proxy: Nginx) -> str:
        url = f"http://127.0.0.1:{proxy.ports[0]}"
        endpoint = Endpoint(url=url, model=MODEL, name="behind", resumable=True)
        deadlines = Deadlines(first_token_s=LIMIT_S, total_s=LIMIT_S)
        async with (
            Client([endpoint], deadlines=deadlines) as client,
            client.stream(prompt="hi", max_tokens=20) as stream,
        ):
            first = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(held.wait_request)
            held.emit(b"a")
            assert (await first).text == "a"
            await asyncio.to_thread(proxy.kill_worker)
            held.emit(b"b")
            held.finish()
            return (await stream.collect()).text

    with held_server() as held, nginx(tmp_path, bare(held.port)) as proxy:
        assert asyncio.run(answer(held, proxy)) == "ab"


def test_who_leaves_the_proxy_leaves_the_server(shared_server: RealServer, tmp_path: Path) -> None:
    with nginx(tmp_path, bare(shared_server.port)) as proxy:
        url = f"http://127.0.0.1:{proxy.ports[0]}/v1/completions"
        body = {**BODY, "max_tokens": 30_000}
        with httpx2.stream("POST", url, json=body, timeout=LIMIT_S) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            assert not shared_server.is_idle()
        assert eventually(shared_server.is_idle)


def test_a_socket_opens_through_what_the_guide_shows(shared_server: RealServer, tmp_path: Path) -> None:
    body = {**BODY, "max_tokens": 300}
    with nginx(tmp_path, documented(shared_server.port)) as proxy:
        address = f"127.0.0.1:{proxy.ports[0]}"
        with httpx2.stream(
            "POST", f"http://{address}/v1/completions", json=body, headers={"x-headway-resumable": "1"}
        ) as response:
            stream = response.headers["x-headway-stream"]
        text, seq = "", 0
        for stop_after in (100, None):
            with connect(f"ws://{address}/v1/streams/{stream}/ws?after={seq}", max_queue=None) as client:
                while True:
                    event = json.loads(client.recv(timeout=LIMIT_S))
                    if event["seq"] == seq + 1:  # else it was sent again
                        seq += 1
                        text += text_of([SseEvent(event["data"].encode())])
                    client.send(json.dumps({"type": "ack", "seq": seq}))
                    if event.get("last"):
                        break
                    if seq == stop_after:
                        proxy.kill_worker()
                        break
    assert text == whole_text(shared_server, max_tokens=300)
