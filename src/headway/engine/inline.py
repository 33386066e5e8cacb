"""The engine on the gateway's own event loop, for tests: neither thread nor socket, everything in a defined order.

A message is handled at once; a step is made when the test asks or, with `auto_step`, once per turn of the event loop. Every
message still goes through msgpack, as it would on a socket.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.errors import EngineUnavailable
from headway.core.events import Hook
from headway.core.messages import FromEngine, Ready, StepOutputs, ToEngine
from headway.engine.link import Link, Receiver
from headway.engine.service import EngineFactory, StepEngine, build_or_explain
from headway.engine.supervisor import Sleep, SupervisedEngineClient


class InlineEngineClient(SupervisedEngineClient):
    """An `EngineClient` for tests: everything happens on the event loop, in a defined order."""

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        hook: Hook | None = None,
        *,
        factory: EngineFactory,
        sleep: Sleep = asyncio.sleep,
        auto_step: bool = False,
    ) -> None:
        self._inline_launcher = _InlineLauncher(lambda: factory(config, clock), auto_step)
        super().__init__(self._inline_launcher, config.model, clock, hook, sleep)

    @property
    def engine(self) -> StepEngine:
        """The engine that was started last."""
        return self._living().engine

    def step(self) -> StepOutputs | None:
        """Make one step if there is work; return what it gave, after the requests' readers have been woken."""
        return self._living().step()

    def crash(self) -> None:
        """End the engine as if its process had died."""
        self._living().end("it crashed")

    def _living(self) -> "_InlineLink":
        if self._inline_launcher.link is None:
            raise EngineUnavailable("The engine was not started.")
        return self._inline_launcher.link


class _InlineLauncher:
    """Builds inline engines, all alike."""

    def __init__(self, build: Callable[[], StepEngine], auto_step: bool) -> None:
        self._build = build
        self._auto_step = auto_step
        self.link: _InlineLink | None = None

    async def launch(self, receiver: Receiver) -> Link:
        self.link = _InlineLink(build_or_explain(self._build), receiver, self._auto_step)
        return self.link


class _InlineLink:
    """One inline engine."""

    def __init__(self, engine: StepEngine, receiver: Receiver, auto_step: bool) -> None:
        self.engine = engine
        self._receiver = receiver
        self._auto_step = auto_step
        self._scheduled = False
        self._ended = False
        self._encode = msgspec.msgpack.Encoder().encode
        self._to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)
        self._from_engine: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
        loop = asyncio.get_running_loop()
        engine.wake_with(lambda: _call_soon(loop, self._schedule))
        self._deliver(Ready(engine.info))

    def send(self, message: ToEngine) -> None:
        if self._ended:
            return
        self.engine.handle(self._to_engine.decode(self._encode(message)))
        self._schedule()

    def step(self) -> StepOutputs | None:
        if self._ended or not self.engine.has_work:
            return None
        outputs = self.engine.step()
        if outputs is not None:
            self._deliver(outputs)
        return outputs

    def end(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self._receiver.connection_lost(reason)

    async def stop(self) -> str:
        self.end("it was stopped")
        return "it ended"

    def _deliver(self, message: FromEngine) -> None:
        self._receiver.message_received(self._from_engine.decode(self._encode(message)))

    def _schedule(self) -> None:
        if self._auto_step and not self._scheduled and self.engine.has_work:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self._scheduled = False
        if self.step() is not None:
            self._schedule()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(call)
