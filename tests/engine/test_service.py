"""The engine's loop on a channel, single-threaded: what it does whenever it would block is the test's script."""

import socket
from collections.abc import Callable, Iterator

import pytest

from headway.core.clock import ManualClock
from headway.core.config import EngineConfig
from headway.core.errors import InternalError, ModelFileError
from headway.core.messages import (
    Cancel,
    ChoiceFinished,
    Drain,
    EngineStats,
    Finished,
    Ready,
    StepOutputs,
    Submit,
    ToEngine,
)
from headway.engine import transport
from headway.engine.frames import FrameDecoder, FrameEncoder, FromWorker, Start, StartFailed
from headway.engine.service import run_engine, serve
from headway.engine.transport import EngineChannel
from support.standin_engine import CONFIG, StandinEngine, build, request


class ScriptedChannel(EngineChannel):
    """Instead of blocking, takes the next entry of `script`; without one it fails the test."""

    def __init__(self, sock: socket.socket, script: list[Callable[[], object]]) -> None:
        super().__init__(sock)
        self._script = script

    def wait(self, timeout_s: float | None = None) -> None:
        if timeout_s == 0:
            super().wait(0)
            return
        assert timeout_s is None
        assert self._script, "the engine waits although the test has nothing more to say"
        self._script.pop(0)()
        super().wait(timeout_s=0)


class Gateway:
    """The other end, as a raw socket."""

    def __init__(self) -> None:
        self._sock, self.engine_end = socket.socketpair()
        self._sock.setblocking(False)
        self._encoder = FrameEncoder()
        self._decoder: FrameDecoder[FromWorker] = FrameDecoder(FromWorker)
        self.received: list[FromWorker] = []

    def send(self, message: ToEngine | Start) -> None:
        self._sock.sendall(self._encoder.encode(message))

    def read(self) -> None:
        while True:
            try:
                data = self._sock.recv(1 << 20)
            except BlockingIOError:
                return
            if not data:
                return
            self.received += self._decoder.feed(data)

    def close(self) -> None:
        self._sock.close()

    def close_both(self) -> None:
        self._sock.close()
        self.engine_end.close()

    def finished(self) -> list[Finished]:
        return [f for m in self.received if isinstance(m, StepOutputs) for f in m.finished]


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.close_both()


def test_an_idle_engine_waits_and_a_busy_one_does_not(gateway: Gateway) -> None:
    channel = ScriptedChannel(
        gateway.engine_end,
        [lambda: gateway.send(Submit(request("a", max_tokens=5))), lambda: gateway.send(Drain())],
    )
    serve(build(CONFIG, ManualClock()), channel)
    gateway.read()
    assert len(gateway.received) == 5
    assert [finished.request_id for finished in gateway.finished()] == ["a"]


def test_an_engine_without_work_prepares_for_more_until_a_message_comes(gateway: Gateway) -> None:
    class Preparing(StandinEngine):
        steps_before: list[int]

        def prepare(self) -> bool:
            assert not self.has_work
            self.steps_before.append(self.num_steps)
            if len(self.steps_before) == 2:
                gateway.send(Submit(request("a", max_tokens=5)))
            return len(self.steps_before) < 4

    engine = Preparing(CONFIG)
    engine.steps_before = []
    serve(engine, ScriptedChannel(gateway.engine_end, [gateway.close]))
    assert engine.steps_before == [0, 0, 5, 5]


def test_a_drained_engine_finishes_what_runs_and_refuses_the_rest(gateway: Gateway) -> None:
    for message in (Submit(request("a", max_tokens=5)), Drain(), Submit(request("b"))):
        gateway.send(message)
    channel = ScriptedChannel(gateway.engine_end, [])
    serve(build(CONFIG, ManualClock()), channel)
    gateway.read()
    assert {finished.request_id: finished.error is None for finished in gateway.finished()} == {
        "a": True,
        "b": False,
    }


def test_an_engine_ends_with_its_gateway_even_while_requests_run(gateway: Gateway) -> None:
    gateway.send(Submit(request("a", max_tokens=100)))
    engine = build(CONFIG, ManualClock())
    channel = ScriptedChannel(gateway.engine_end, [gateway.close])
    serve(engine, channel)
    assert channel.ended


def test_a_congested_engine_makes_no_step_but_takes_cancellations(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_BACKLOG_BYTES", 0)
    engine = build(CONFIG, ManualClock())

    def cancel() -> None:
        assert engine.num_steps == 0
        gateway.send(Cancel(request_id="a"))

    def read() -> None:
        assert engine.handled == [Submit(request("a", max_tokens=100)), Cancel(request_id="a")]
        assert engine.num_steps == 0
        gateway.read()

    def read_until_the_end() -> None:
        gateway.read()
        if not gateway.finished():
            script.insert(0, read_until_the_end)

    script: list[Callable[[], object]] = [cancel, read, read_until_the_end, gateway.close]
    channel = ScriptedChannel(gateway.engine_end, script)
    num_earlier = 0
    while not channel.congested:  # the gateway has not read for long
        channel.send(StepOutputs(stats=EngineStats()))
        num_earlier += 1
    gateway.send(Submit(request("a", max_tokens=100)))
    serve(engine, channel)
    assert engine.num_steps == 1
    assert len(gateway.received) == num_earlier + 1
    assert [finished.request_id for finished in gateway.finished()] == ["a"]


def test_an_engine_that_can_do_nothing_waits_instead_of_spinning(gateway: Gateway) -> None:
    class Stuck(StandinEngine):
        has_work = True

        def step(self) -> StepOutputs | None:
            return None

    channel = ScriptedChannel(gateway.engine_end, [gateway.close])
    serve(Stuck(CONFIG), channel)


@pytest.mark.parametrize(("model", "code"), [("missing", ModelFileError.code), ("bug", InternalError.code)])
def test_a_failure_to_build_is_sent_as_an_error(gateway: Gateway, model: str, code: str) -> None:
    channel = EngineChannel(gateway.engine_end)
    assert not run_engine(channel, lambda: build(EngineConfig(model=model), ManualClock()))
    gateway.read()
    (message,) = gateway.received
    assert isinstance(message, StartFailed)
    assert message.error.code == code


@pytest.mark.parametrize(
    "message", [Submit(request("a", num_prompt_tokens=0)), Start(config=CONFIG, factory="again")]
)
def test_an_engine_that_fails_closes_its_channel(gateway: Gateway, message: ToEngine | Start) -> None:
    class Broken(StandinEngine):
        def handle(self, message: ToEngine) -> None:
            raise RuntimeError(f"a bug, met by {message}")

    channel = EngineChannel(gateway.engine_end)
    gateway.send(message)
    assert not run_engine(channel, lambda: Broken(CONFIG))
    assert channel.ended
    gateway.read()
    assert [type(message) for message in gateway.received] == [Ready]


def test_outputs_keep_their_order_on_the_way(gateway: Gateway) -> None:
    gateway.send(Submit(request("a", max_tokens=2, n=2)))
    gateway.send(Drain())
    assert run_engine(EngineChannel(gateway.engine_end), lambda: build(CONFIG, ManualClock()))
    gateway.read()
    ready, *_, last = gateway.received
    assert isinstance(ready, Ready)
    assert isinstance(last, StepOutputs)
    assert last.choices == (ChoiceFinished("a", 0, "length"), ChoiceFinished("a", 1, "length"))
    assert last.stats == EngineStats(num_running=0, steps_total=2)
