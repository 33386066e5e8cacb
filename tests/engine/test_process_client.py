"""The engine process: deaths on either side, restarts, signals, descriptors."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import uvloop

from headway.core.clock import ManualClock, MonotonicClock
from headway.core.config import EngineConfig
from headway.core.errors import Draining, EngineDied, EngineUnavailable, ModelFileError
from headway.core.events import EngineStateChanged, Event
from headway.core.messages import ChoiceFinished, Finished
from headway.engine.client import RequestEvent
from headway.engine.frames import LogSettings
from headway.engine.process import ProcessEngineClient, describe_exit
from support.standin_engine import CONFIG, FACTORY, PAUSE_AFTER, child_env, read_until_paused, request

pytestmark = pytest.mark.anyio


class Sleeper:
    """Waits until the test wakes it; keeps the delays it was asked for."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self.asleep = asyncio.Event()
        self._wake = asyncio.Event()

    async def __call__(self, delay_s: float) -> None:
        self.delays_s.append(delay_s)
        self.asleep.set()
        await self._wake.wait()
        self._wake.clear()

    async def wake(self) -> None:
        await self.asleep.wait()
        self.asleep.clear()
        self._wake.set()


class States:
    """A hook that keeps state changes and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[EngineStateChanged] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, EngineStateChanged):
            self.events.append(event)
            self._changed.set()

    async def wait_for(self, state: str) -> None:
        while self.events[-1].state != state:
            self._changed.clear()
            await self._changed.wait()


async def read(stream: AsyncIterator[tuple[RequestEvent, ...]]) -> list[RequestEvent]:
    return [event async for events in stream for event in events]


def client_of(config: EngineConfig = CONFIG, **keywords: object) -> ProcessEngineClient:
    arguments = {"clock": MonotonicClock(), "factory": FACTORY, "env": child_env(), **keywords}
    return ProcessEngineClient(config, **arguments)  # type: ignore[arg-type]


@asynccontextmanager
async def started(client: ProcessEngineClient) -> AsyncIterator[ProcessEngineClient]:
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_killed_engine_ends_requests_with_a_typed_error_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, sleeper, states = ManualClock(), Sleeper(), States()
    async with started(client_of(clock=clock, hook=states, sleep=sleeper)) as client:
        streams = [client.submit_nowait(request(f"r{i}", max_tokens=100, n=2)) for i in range(3)]
        for stream in streams:
            await read_until_paused(stream)
        first_pid = client.pid
        assert first_pid is not None
        os.kill(first_pid, signal.SIGKILL)
        for i, stream in enumerate(streams):
            *_, choice_0, choice_1, finished = await read(stream)
            assert (choice_0, choice_1) == tuple(ChoiceFinished(f"r{i}", c, "error") for c in (0, 1))
            assert isinstance(finished, Finished)
            assert finished.error is not None
            assert finished.error.code == EngineDied.code
            assert finished.usage.completion_tokens == 2 * PAUSE_AFTER
        assert client.state == "restarting"
        with pytest.raises(EngineUnavailable) as refused:
            client.submit_nowait(request("early"))
        assert refused.value.retry_after_s == 1.0  # it is loading
        client.cancel_nowait("r0")
        await sleeper.wake()
        await states.wait_for("ready")
        assert not is_running(first_pid)
        assert client.pid != first_pid
        assert isinstance((await read(client.submit_nowait(request("again"))))[-1], Finished)
    assert [event.state for event in states.events] == ["starting", "ready", "restarting", "ready", "closed"]
    assert "restart in 0 s" in states.events[2].reason
    assert sleeper.delays_s == [0.0]
    assert "killed by SIGKILL; restart in 0 s" in caplog.text


async def test_a_crash_loop_waits_longer_each_time_and_health_forgives() -> None:
    clock, sleeper, states = ManualClock(), Sleeper(), States()
    async with started(client_of(clock=clock, hook=states, sleep=sleeper)) as client:
        for uptime_s in (1, 1, 1, 61):
            clock.advance(uptime_s * 1_000_000_000)
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            await states.wait_for("restarting")
            await sleeper.asleep.wait()
            if sleeper.delays_s[-1]:
                clock.advance(250_000_000)
                with pytest.raises(EngineUnavailable) as refused:
                    client.submit_nowait(request("early"))
                assert refused.value.retry_after_s == pytest.approx(sleeper.delays_s[-1] - 0.25)
            await sleeper.wake()
            await states.wait_for("ready")
        assert sleeper.delays_s == [0.0, 1.0, 2.0, 0.0]


async def test_who_waits_for_an_engine_goes_on_when_it_is_there() -> None:
    sleeper, states = Sleeper(), States()
    async with started(client_of(hook=states, sleep=sleeper)) as client:
        await client.wait_ready()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await sleeper.asleep.wait()
        waiting = [asyncio.create_task(client.wait_ready()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        await sleeper.wake()
        await asyncio.gather(*waiting)
        assert client.state == "ready"


@pytest.mark.parametrize(("end", "error"), [("drain", Draining), ("close", EngineUnavailable)])
async def test_who_waits_for_an_engine_hears_that_none_will_come(end: str, error: type[Exception]) -> None:
    sleeper = Sleeper()
    async with started(client_of(sleep=sleeper)) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await sleeper.asleep.wait()
        waiting = asyncio.create_task(client.wait_ready())
        await asyncio.sleep(0)
        await (client.drain(timeout_s=0) if end == "drain" else client.close())
        with pytest.raises(error):
            await waiting
        with pytest.raises(error):
            await client.wait_ready()


@pytest.mark.parametrize("fault", [666, 667], ids=["exception", "garbage"])
async def test_an_engine_that_fails_is_restarted(fault: int) -> None:
    sleeper, states = Sleeper(), States()
    async with started(client_of(hook=states, sleep=sleeper)) as client:
        first_pid = client.pid
        stream = client.submit_nowait(msgspec.structs.replace(request("a"), token_ids=(fault,)))
        finished = (await read(stream))[-1]
        assert isinstance(finished, Finished)
        assert finished.error is not None
        assert finished.error.code == "engine_died"
        assert ("not a message" in states.events[-1].reason) == (fault == 667)
        await sleeper.wake()
        await states.wait_for("ready")
        assert first_pid is not None
        assert not is_running(first_pid)


async def test_a_restart_that_fails_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper, states = Sleeper(), States()
    env = child_env()
    async with started(client_of(hook=states, sleep=sleeper, env=env)) as client:
        launcher = client._process_launcher
        good = launcher._start
        bad = msgspec.structs.replace(good, config=EngineConfig(model="missing"))
        monkeypatch.setattr(launcher, "_start", bad)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await sleeper.wake()
        await sleeper.asleep.wait()
        assert client.state == "restarting"
        assert "does not exist" in states.events[-1].reason
        monkeypatch.setattr(launcher, "_start", good)
        await sleeper.wake()
        await states.wait_for("ready")
    assert sleeper.delays_s == [0.0, 1.0]


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_draining_or_closing_stops_a_restart(end: str) -> None:
    sleeper = Sleeper()
    async with started(client_of(sleep=sleeper)) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await sleeper.asleep.wait()
        if end == "drain":
            assert await client.drain(timeout_s=0)
        await client.close()
        assert not is_running(client.pid)


async def test_a_request_that_drains_when_the_engine_dies_ends_with_an_error() -> None:
    async with started(client_of()) as client:
        stream = client.submit_nowait(request("a", max_tokens=100))
        await anext(stream)
        drained = asyncio.create_task(client.drain(timeout_s=30))
        await asyncio.sleep(0)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        assert await drained
        finished = (await read(stream))[-1]
        assert isinstance(finished, Finished)
        assert finished.error is not None
        assert client.state == "draining"


async def test_an_engine_that_ends_while_it_starts_is_reported() -> None:
    client = client_of(EngineConfig(model="exit"))
    with pytest.raises(EngineDied, match="ended while it started"):
        await client.start()
    assert client.pid is not None
    assert not is_running(client.pid)


async def test_a_process_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    num_fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineUnavailable, match="could not be started"):
        await client_of().start()
    assert len(os.listdir("/proc/self/fd")) == num_fds


async def test_a_cancelled_start_leaves_no_process() -> None:
    client = client_of(EngineConfig(model="slow"))
    start = asyncio.create_task(client.start())
    while client.pid is None:  # noqa: ASYNC110  # nothing announces a process that has only just been forked
        await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait({start})
    assert client.state == "closed"
    assert not is_running(client.pid)


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_ending_while_the_model_loads_does_not_wait_for_it(end: str) -> None:
    client = client_of(EngineConfig(model="slow"))
    start = asyncio.create_task(client.start())
    while client.pid is None:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0)
    with pytest.raises(EngineUnavailable):
        client.submit_nowait(request("a"))
    await (client.close() if end == "close" else client.drain(timeout_s=0))
    with pytest.raises(Draining):
        await start
    assert client.state == "closed"
    assert not is_running(client.pid)


async def test_signals_to_the_group_do_not_end_the_engine() -> None:
    async with started(client_of()) as client:
        assert client.pid is not None
        assert os.getpgid(client.pid) != os.getpgid(0)
        os.kill(client.pid, signal.SIGINT)
        os.kill(client.pid, signal.SIGTERM)
        assert isinstance((await read(client.submit_nowait(request("a"))))[-1], Finished)


async def test_an_engine_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.engine.process.STOP_TIMEOUT_S", 0.01)
    async with started(client_of()) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        await client.close()
        assert not is_running(client.pid)


async def test_the_log_is_set_up_as_asked(capfd: pytest.CaptureFixture[str]) -> None:
    log = LogSettings(setup="support.standin_engine:set_up_logging", level="DEBUG", json=True)
    async with started(client_of(log=log)):
        pass
    assert capfd.readouterr().err == "log level DEBUG, json True\n"


def test_a_dead_gateway_ends_its_engine() -> None:
    program = (
        "import asyncio, sys\n"
        "from headway.core.clock import MonotonicClock\n"
        "from headway.engine.process import ProcessEngineClient\n"
        "from support.standin_engine import CONFIG, FACTORY\n"
        "async def main():\n"
        "    client = ProcessEngineClient(CONFIG, MonotonicClock(), factory=FACTORY)\n"
        "    await client.start()\n"
        "    print(client.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=child_env(), stdout=subprocess.PIPE
    ) as gateway:
        assert gateway.stdout is not None
        engine_pid = int(gateway.stdout.readline())
        engine = os.pidfd_open(engine_pid)
        try:
            gateway.kill()
            ended, _, _ = select.select([engine], [], [], 30)
            assert ended
        finally:
            os.close(engine)


def test_the_client_works_on_uvloop() -> None:
    async def kill_and_go_on() -> None:
        sleeper, states = Sleeper(), States()
        async with started(client_of(hook=states, sleep=sleeper)) as client:
            stream = client.submit_nowait(request("a", max_tokens=100))
            await anext(stream)
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            finished = (await read(stream))[-1]
            assert isinstance(finished, Finished)
            assert finished.error is not None
            await sleeper.wake()
            await states.wait_for("ready")
            assert isinstance((await read(client.submit_nowait(request("b"))))[-1], Finished)
        with pytest.raises(ModelFileError):
            await client_of(EngineConfig(model="missing")).start()

    async def main() -> None:
        await kill_and_go_on()  # what the loop opens once and keeps, is
        num_fds = len(os.listdir("/proc/self/fd"))
        await kill_and_go_on()
        await asyncio.sleep(0)  # uvloop closes its handles in the turn after
        assert len(os.listdir("/proc/self/fd")) == num_fds

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "its process has not ended"),
        (3, "its process ended with status 3"),
        (-9, "its process was killed by SIGKILL"),
        (-99, "its process was killed by signal 99"),
    ],
)
def test_an_exit_is_described(status: int | None, text: str) -> None:
    assert describe_exit(status) == text
