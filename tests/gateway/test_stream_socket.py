"""A stream's WebSocket, with a real client on a real server."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from starlette.types import Receive, Scope, Send
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect

from headway.core.caller import Caller
from headway.core.clock import MonotonicClock
from headway.core.errors import Unauthenticated
from headway.core.events import CallRefused, Event, Hook, StreamResent, StreamResumed
from headway.core.secret import Secret
from headway.flow.config import LimitsConfig
from headway.flow.local import LocalLimits
from headway.gateway import stream_socket
from headway.gateway.app import create_app
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.gateway import Gateway
from headway.gateway.stream_run import StreamTerms
from headway.gateway.streams import Streams
from headway.streams import delivery
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from support.gateway_app import MODEL, served
from support.live_server import live_server
from support.scripted_client import FakeEngineClient, answering

TEXT = "to be read twice"


@contextmanager
def running(
    door: Door | None = None, hook: Hook | None = None, unsent: list[int] | None = None
) -> Iterator[tuple[str, Gateway]]:
    """Serve an engine that answers TEXT at once; yield the address and the gateway. `unsent`: bytes in sockets' buffers."""
    clock = MonotonicClock()
    streams = Streams(MemoryLog(StreamLimits(), lambda: 1_800_000_000_000), clock, StreamTerms(grace_s=60))
    engine = FakeEngineClient(script=answering(TEXT))
    gateway = Gateway(
        {MODEL: served(engine)},
        config=GatewayConfig(),
        clock=clock,
        wall_time_s=lambda: 1.8e9,
        streams=streams,
        door=door,
        hook=hook,
    )
    app = create_app(gateway)

    async def buffered(scope: Scope, receive: Receive, send: Send) -> None:
        if unsent is not None and scope["type"] == "websocket":
            scope.setdefault("extensions", {})["headway.unsent_bytes"] = lambda: unsent[0]
        await app(scope, receive, send)

    with live_server(buffered) as (host, port):
        yield f"{host}:{port}", gateway


def start(address: str) -> str:
    """Start a stream, read its beginning, drop it; return its name."""
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with httpx2.stream(
        "POST", f"http://{address}/v1/chat/completions", json=body, headers={"x-headway-resumable": "1"}
    ) as response:
        return response.headers["x-headway-stream"]


def next_event(client: ClientConnection) -> dict[str, object]:
    message = json.loads(client.recv(timeout=20))
    assert isinstance(message, dict)
    return message


def read_to_the_end(client: ClientConnection) -> list[dict[str, object]]:
    events = [next_event(client)]
    while not events[-1].get("last"):
        events.append(next_event(client))
    return events


def read_all(client: ClientConnection, events: list[dict[str, object]]) -> None:
    while True:
        events.append(next_event(client))


def content(events: list[dict[str, object]]) -> str:
    chunks = [json.loads(str(event["data"])) for event in events[:-1]]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


class Stranger:
    """Knows nobody."""

    async def identify(self, shown: Secret | None) -> Caller:  # noqa: ARG002
        raise Unauthenticated("No.")

    async def close(self) -> None:
        pass


def refusal_of(address: str, stream: str = "0" * 32) -> Response:
    """Return how a socket is refused."""
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{address}/v1/streams/{stream}/ws"):
        pass
    return refused.value.response


def test_a_socket_is_refused_counted_and_logged_as_a_request_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    events: list[Event] = []
    with running(Door(Stranger()), events.append) as (address, _):
        response = refusal_of(address)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert json.loads(response.body or b"")["error"]["code"] == "unauthenticated"
    (line,) = [record for record in caplog.records if record.name == "headway.access"]
    assert line.__dict__["request_id"] == response.headers["x-request-id"]
    assert line.__dict__["http"]["status"] == 401
    assert [event.status for event in events if isinstance(event, CallRefused)] == [401]


def test_who_tries_names_of_streams_on_sockets_is_slowed_and_then_refused() -> None:
    limits = LocalLimits(LimitsConfig(requests_per_s=0.01, floor_per_s=0.01, burst_s=300), MonotonicClock())
    with running(Door(None, limits)) as (address, _):
        responses = [refusal_of(address, f"{number:032x}") for number in range(5)]
    assert responses[0].status_code == 404
    assert responses[-1].status_code == 429
    assert int(responses[-1].headers["retry-after"]) > 1


def test_an_open_socket_has_one_access_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    with running() as (address, _):
        stream = start(address)
        with connect(f"ws://{address}/v1/streams/{stream}/ws") as client:
            assert client.response is not None
            request_id = client.response.headers["x-request-id"]
            client.send(json.dumps({"type": "ack", "seq": len(read_to_the_end(client))}))
            with pytest.raises(ConnectionClosed):
                client.recv(timeout=20)
    (line,) = [record for record in caplog.records if record.__dict__.get("request_id") == request_id]
    assert line.__dict__["http"]["status"] == 101


def test_acknowledging_the_last_event_closes_the_socket() -> None:
    with running() as (address, _):
        stream = start(address)
        with connect(f"ws://{address}/v1/streams/{stream}/ws") as client:
            events = read_to_the_end(client)
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert content(events) == TEXT
            client.send(json.dumps({"type": "ack", "seq": len(events)}))
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(timeout=20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000
        assert httpx2.get(f"http://{address}/v1/streams/{stream}?after=1").status_code == 410


def test_what_is_not_acknowledged_comes_again_with_the_same_number() -> None:
    told: list[Event] = []
    with (
        running(hook=told.append) as (address, _),
        connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client,
    ):
        events = read_to_the_end(client)
        again = [next_event(client) for _ in events]
        assert {event["seq"]: event["data"] for event in again} == {e["seq"]: e["data"] for e in events}
    kinds = ["content" if event["kind"] == "content" else "control" for event in events]
    resent = [event.kind for event in told if isinstance(event, StreamResent)]
    assert resent[: len(kinds)] == kinds
    assert StreamResumed(replayed=len(events)) in told


def test_nothing_comes_again_while_bytes_wait_in_the_sockets_buffer() -> None:
    told: list[Event] = []
    unsent = [1]
    with (
        running(hook=told.append, unsent=unsent) as (address, _),
        connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client,
    ):
        events = read_to_the_end(client)
        with pytest.raises(TimeoutError):
            client.recv(timeout=1)
        assert not any(isinstance(event, StreamResent) for event in told)
        unsent[0] = 0
        assert next_event(client)["seq"] == events[0]["seq"]


def test_a_heartbeat_is_answered_and_carries_an_acknowledgement() -> None:
    with (
        running() as (address, _),
        connect(f"ws://{address}/v1/streams/{start(address)}/ws?after=3") as client,
    ):
        assert next_event(client)["seq"] == 4
        client.send(json.dumps({"type": "heartbeat", "ms": 123, "ack": {"seq": 4}}))
        while (message := next_event(client))["type"] != "heartbeat":
            pass
        assert message == {"type": "heartbeat", "ms": 123}


def test_an_acknowledgement_may_be_ahead_of_what_this_connection_sent() -> None:
    with running() as (address, _), connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client:
        client.send(json.dumps({"type": "ack", "seq": 8}))  # as an older connection delivered it
        events = read_to_the_end(client)
        numbers = [int(str(event["seq"])) for event in events]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] > 8


@pytest.mark.parametrize(
    "message", ["x", "{}", '{"type": "ack", "seq": 10000}', '{"type": "ack", "seq": 1, "epoch": 7}']
)
def test_a_message_that_makes_no_sense_is_told_and_ends_the_socket(message: str) -> None:
    with running() as (address, _), connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client:
        client.send(message)
        events: list[dict[str, object]] = []
        with pytest.raises(ConnectionClosed) as closed:
            read_all(client, events)
        assert events[-1]["type"] == "error"
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/streams/" + "0" * 32 + "/ws", 404),
        ("/v1/streams/{}/ws?after=x", 400),
        ("/v1/streams/{}/ws?after=999", 410),
    ],
)
def test_a_socket_is_refused_with_a_status_and_no_complaint(
    path: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with running() as (address, _):
        url = f"ws://{address}{path.format(start(address))}"
        with pytest.raises(InvalidStatus) as refused, connect(url):
            pass
        assert refused.value.response.status_code == status
        assert b"code" in (refused.value.response.body or b"")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_client_that_comes_back_goes_on_where_it_stood() -> None:
    with running() as (address, gateway):
        stream = start(address)
        events: list[dict[str, object]] = []
        for _ in range(4):
            after = events[-1]["seq"] if events else 0
            # Leaving with a queue that is full would wait for the close that stands behind it.
            with connect(f"ws://{address}/v1/streams/{stream}/ws?after={after}", max_queue=None) as client:
                events += [next_event(client) for _ in range(3)]
        with connect(f"ws://{address}/v1/streams/{stream}/ws?after={events[-1]['seq']}") as client:
            events += read_to_the_end(client)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert content(events) == TEXT
        assert gateway.num_active == 0


def test_a_client_that_acknowledges_nothing_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "MAX_UNACKNOWLEDGED", 4)
    monkeypatch.setattr(stream_socket, "LAST_ACK_S", 0.0)
    with running() as (address, _), connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client:
        events: list[dict[str, object]] = []
        with pytest.raises(ConnectionClosed) as closed:
            read_all(client, events)
        assert {event["seq"] for event in events[:-1]} == {1, 2, 3, 4}
        assert events[-1]["error"]["code"] == "stream_unread"  # type: ignore[index]
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_one_who_acknowledges_a_little_at_a_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_UNACKNOWLEDGED", 4)
    with running() as (address, _), connect(f"ws://{address}/v1/streams/{start(address)}/ws") as client:
        events = [next_event(client)]
        while not events[-1].get("last"):
            client.send(json.dumps({"type": "ack", "seq": events[-1]["seq"]}))
            events.append(next_event(client))
        numbers = sorted({int(str(event["seq"])) for event in events})
        assert numbers == list(range(1, len(numbers) + 1))
