"""Frames and channels: any cut of the stream, full buffers, the end of a connection."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import PayloadTooLarge, QueueFull
from headway.core.messages import Cancel, Drain, EngineStats, Finished, StepOutputs, Submit, TokenDelta, Usage
from headway.engine import gateway_channel, transport
from headway.engine.frames import (
    MAX_FRAME_BYTES,
    BadFrame,
    FrameDecoder,
    FrameEncoder,
    FromWorker,
    Start,
    ToWorker,
)
from headway.engine.gateway_channel import GatewayChannel
from headway.engine.transport import EngineChannel
from support.standin_engine import CONFIG, request

STEP = StepOutputs(
    deltas=(TokenDelta("a", 0, (1, 2)),),
    finished=(Finished(request_id="b", usage=Usage(prompt_tokens=1, completion_tokens=2)),),
    stats=EngineStats(steps_total=1),
)
MESSAGES: tuple[ToWorker, ...] = (
    Start(config=CONFIG, factory="m:f"),
    Submit(request("a", num_prompt_tokens=50)),
    Cancel(request_id="a", choice=1, reason="stop"),
    Drain(),
)


class Inbox:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[FromWorker] = []
        self.lost: list[str] = []
        self.changed = asyncio.Event()

    def message_received(self, message: FromWorker) -> None:
        self.messages.append(message)
        self.changed.set()

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.changed.set()

    async def next_change(self) -> None:
        await self.changed.wait()
        self.changed.clear()


@given(st.lists(st.integers(1, 40), max_size=60))
def test_messages_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    encoder = FrameEncoder()
    stream = b"".join(encoder.encode(message) for message in MESSAGES)
    decoder: FrameDecoder[ToWorker] = FrameDecoder(ToWorker)
    received: list[ToWorker] = []
    for size in [*cuts, len(stream)]:
        received += decoder.feed(stream[:size])
        stream = stream[size:]
    assert tuple(received) == MESSAGES
    assert decoder.is_empty


def test_a_prompt_of_two_million_tokens_fits_a_frame() -> None:
    frame = FrameEncoder().encode(Submit(request("a", num_prompt_tokens=2_000_000)))
    assert len(frame) < MAX_FRAME_BYTES
    (message,) = FrameDecoder[ToWorker](ToWorker).feed(frame)
    assert isinstance(message, Submit)
    assert message.request.token_ids[-1] == 1_999_999


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",  # a length far beyond the bound
        b"\0\0\0\x01\xc1",  # a byte msgpack never uses
        b"\0\0\0\0",  # an empty frame
        b"\0\0\0\x02" + msgspec.msgpack.encode([1]),  # not one of our structs
        b"\0\0\0\x0a" + msgspec.msgpack.encode({"type": "boo"}),  # an unknown tag
    ],
)
def test_garbage_is_a_bad_frame(data: bytes) -> None:
    with pytest.raises(BadFrame):
        FrameDecoder[ToWorker](ToWorker).feed(data)


@pytest.fixture
def pair() -> Iterator[tuple[EngineChannel, socket.socket]]:
    """An engine's channel and the raw socket at its other end."""
    engine_end, gateway_end = socket.socketpair()
    yield EngineChannel(engine_end), gateway_end
    engine_end.close()
    gateway_end.close()


def test_an_engine_sees_the_gateway_end(pair: tuple[EngineChannel, socket.socket]) -> None:
    channel, gateway = pair
    gateway.close()
    channel.wait()
    assert channel.receive() == []
    assert channel.ended
    channel.wait()  # returns at once
    channel.close()


@pytest.mark.parametrize("last_bytes", [b"\xff\xff\xff\xff", b"\0\0\0\x01\xc1"])
def test_an_engine_treats_garbage_as_the_gateways_end(
    pair: tuple[EngineChannel, socket.socket], last_bytes: bytes
) -> None:
    channel, gateway = pair
    with gateway:
        gateway.sendall(last_bytes)
        assert channel.receive() == []
        assert channel.ended
    channel.close()


def test_sending_to_a_gateway_that_is_gone_ends_the_channel(
    pair: tuple[EngineChannel, socket.socket],
) -> None:
    channel, gateway = pair
    gateway.close()
    channel.send(STEP)
    assert channel.ended
    channel.close()


def test_a_gateway_that_does_not_read_congests_the_channel_and_loses_nothing(
    pair: tuple[EngineChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_BACKLOG_BYTES", 10_000)
    channel, gateway = pair
    num_sent = 0
    while not channel.congested:
        channel.send(STEP)
        num_sent += 1
        assert num_sent < 100_000
    assert channel.backlog_bytes > 10_000
    decoder: FrameDecoder[FromWorker] = FrameDecoder(FromWorker)
    received: list[FromWorker] = []
    gateway.setblocking(False)
    while len(received) < num_sent:
        received += decoder.feed(gateway.recv(65536))
        channel.wait(timeout_s=0)
    assert received == [STEP] * num_sent
    assert channel.backlog_bytes == 0
    gateway.close()
    channel.close()


def test_a_drain_of_the_socket_is_bounded(
    pair: tuple[EngineChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_RECEIVE_BYTES", 1)
    monkeypatch.setattr(transport, "_CHUNK_BYTES", 16)
    channel, gateway = pair
    with gateway:
        gateway.sendall(FrameEncoder().encode(Cancel(request_id="a" * 20)))
        assert channel.receive() == []
        messages: list[ToWorker] = []
        for _ in range(10):
            messages += channel.receive()
        assert messages == [Cancel(request_id="a" * 20)]
    channel.close()


def test_a_flood_of_prompts_is_taken_in_parts(pair: tuple[EngineChannel, socket.socket]) -> None:
    """Each part costs the running streams time, decoding and hashing included: a few prompts of 8,000 tokens at once."""
    channel, gateway = pair
    gateway.setblocking(False)
    gateway.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # the kernel grants what it allows
    frame = FrameEncoder().encode(Submit(msgspec.structs.replace(request("r"), token_ids=(40_000,) * 8_000)))
    num_sent, unsent, parts = 0, memoryview(b""), list[int]()
    with gateway:
        while num_sent < 20 or unsent:
            if not unsent:
                num_sent, unsent = num_sent + 1, memoryview(frame)
            try:
                unsent = unsent[gateway.send(unsent) :]
            except BlockingIOError:
                parts.append(len(channel.receive()))
        while sum(parts) < num_sent:
            parts.append(len(channel.receive()))
    assert max(parts) <= 9
    channel.close()


def test_a_wait_ends_when_it_is_woken_before_or_meanwhile(pair: tuple[EngineChannel, socket.socket]) -> None:
    channel, _ = pair
    wake = channel.open_waker()
    for _ in range(100_000):  # more than the pair holds: none of them blocks
        wake()
    channel.wait(timeout_s=30)
    waker = threading.Thread(target=wake)
    waker.start()
    channel.wait(timeout_s=30)
    waker.join()
    channel.close()
    wake()  # nobody is there, and nothing happens


def test_finish_gives_up_on_a_gateway_that_does_not_read(pair: tuple[EngineChannel, socket.socket]) -> None:
    channel, gateway = pair
    with gateway:
        while channel.backlog_bytes == 0:
            channel.send(STEP)
        channel.finish(timeout_s=0)
        assert channel.ended


@pytest.mark.anyio
async def test_both_ends_exchange_messages() -> None:
    engine_end, gateway_end = socket.socketpair()
    inbox = Inbox()
    gateway = await GatewayChannel.open(gateway_end, inbox)
    engine = EngineChannel(engine_end)
    for message in MESSAGES:
        gateway.send(message)
    engine.wait()
    assert tuple(engine.receive()) == MESSAGES
    engine.send(STEP)
    await inbox.next_change()
    assert inbox.messages == [STEP]
    engine.close()
    await inbox.next_change()
    assert inbox.lost == ["its connection ended"]
    gateway.send(Drain())  # ignored
    gateway.abort("again")


@pytest.mark.anyio
async def test_an_engine_that_does_not_read_makes_requests_be_refused_but_not_cancellations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_channel, "MAX_UNREAD_BYTES", 1_600_000)
    engine_end, gateway_end = socket.socketpair()
    inbox = Inbox()
    gateway = await GatewayChannel.open(gateway_end, inbox)
    big = Submit(request("a", num_prompt_tokens=200_000))
    gateway.send(big)
    gateway.send(big)
    with pytest.raises(QueueFull):
        gateway.send(big)
    gateway.send(Cancel(request_id="a"))
    engine = EngineChannel(engine_end)
    messages: list[ToWorker] = []
    while Cancel(request_id="a") not in messages:
        messages += engine.receive()
        await asyncio.sleep(0)
    assert messages[0] == big
    gateway.abort("the test is over")
    await inbox.next_change()
    engine.close()


@pytest.mark.anyio
async def test_a_prompt_beyond_a_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.engine.frames.MAX_FRAME_BYTES", 100)
    engine_end, gateway_end = socket.socketpair()
    inbox = Inbox()
    gateway = await GatewayChannel.open(gateway_end, inbox)
    with pytest.raises(PayloadTooLarge):
        gateway.send(Submit(request("a", num_prompt_tokens=1000)))
    gateway.abort("the test is over")
    await inbox.next_change()
    engine_end.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\0\0\0\x01\xc1", "not a message"),
        (b"\xff\xff\xff\xff", "exceeds"),
        (b"\0\0\0\x09half", "in the middle of a message"),
    ],
)
async def test_a_gateway_treats_garbage_and_torn_frames_as_the_engines_end(sent: bytes, reason: str) -> None:
    engine_end, gateway_end = socket.socketpair()
    inbox = Inbox()
    await GatewayChannel.open(gateway_end, inbox)
    with engine_end:
        engine_end.sendall(FrameEncoder().encode(STEP) + sent)
        if "middle" in reason:
            engine_end.shutdown(socket.SHUT_RDWR)
        while not inbox.lost:
            await inbox.next_change()
    assert reason in inbox.lost[0]
