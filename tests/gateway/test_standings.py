"""What operators and listeners hear of callers: standings now and then, risks and settled tokens always."""

import json

import pytest

from headway.access.token_store import StoreFailed
from headway.core.caller import Caller, CallerLimits
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.events import Event, RiskAssessed, TokensSettled
from headway.flow.config import LimitsConfig
from headway.flow.local import LocalLimits
from headway.flow.signals import Signal
from headway.gateway.door import Door
from headway.gateway.standings import EVERY_NS, Standings

pytestmark = pytest.mark.anyio

ANN = Caller(token_id="tok_ann", user="ann", limits=CallerLimits(tokens_per_min=10_000))


class Shelf:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes, int]] = []
        self.failure: Exception | None = None

    async def put(self, token_id: str, standing: bytes, now_s: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.kept.append((token_id, standing, now_s))


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock(1)
        self.shelf = Shelf()
        self.events: list[Event] = []
        self.limits = LocalLimits(LimitsConfig(), self.clock)
        self.standings = Standings(self.shelf.put, self.clock, lambda: 1_800_000_000.0)
        self.door = Door(None, self.limits, None, self.standings, self.events.append)

    async def call(self, caller: Caller = ANN) -> None:
        async with self.door.call(caller, ()) as call:
            await call.reserve(50)
            call.use(20)

    async def written(self) -> None:
        """Wait for what is being written."""
        for task in tuple(self.standings.tasks):
            await task


async def test_a_slowed_caller_is_told_of_once_in_a_while() -> None:
    w = Watched()
    await w.call()
    await w.written()
    assert w.shelf.kept == []  # nobody slows him
    await w.limits.note(ANN, Signal("malformed"))
    for _ in range(3):
        await w.call()
        await w.written()
    assert len(w.shelf.kept) == 1
    token_id, standing, now_s = w.shelf.kept[0]
    assert (token_id, now_s) == ("tok_ann", 1_800_000_000)
    assert "malformed" in json.dumps(json.loads(standing)["why"])
    w.clock.advance(EVERY_NS)
    await w.limits.note(ANN, Signal("malformed"))
    await w.call()
    await w.written()
    assert len(w.shelf.kept) == 2


async def test_a_store_that_fails_is_told_of_in_one_line_and_once(caplog: pytest.LogCaptureFixture) -> None:
    w = Watched()

    async def call() -> None:
        await w.limits.note(ANN, Signal("malformed"))
        w.clock.advance(EVERY_NS)
        await w.call()
        await w.written()

    w.shelf.failure = StoreFailed("full", "/somewhere")
    await call()
    await call()
    assert w.shelf.kept == []
    assert len(caplog.records) == 1
    assert "no room" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is None
    w.shelf.failure = None
    await call()
    assert len(w.shelf.kept) == 1
    w.shelf.failure = StoreFailed("full", "/somewhere")
    await call()
    assert len(caplog.records) == 2


async def test_a_bug_in_what_keeps_standings_is_the_operators_affair(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = Watched()
    w.shelf.failure = OSError("what nobody thought of")
    await w.limits.note(ANN, Signal("malformed"))
    await w.call()
    await w.written()
    assert caplog.records[0].exc_info is not None
    await w.door.close()


async def test_nobody_in_particular_stands_nowhere() -> None:
    w = Watched()
    stranger = Caller(user="address 192.0.2.1", limits=ANN.limits)
    await w.limits.note(stranger, Signal("failed_auth"))
    await w.call(stranger)
    await w.written()
    assert w.shelf.kept == []


async def test_risks_and_settled_tokens_are_told() -> None:
    w = Watched()
    await w.call()
    await w.limits.note(ANN, Signal("failed_auth"))
    w.clock.advance(NS_PER_S)
    await w.call()
    risks = [event.risk for event in w.events if isinstance(event, RiskAssessed)]
    assert risks[0] == 0 < risks[1]
    settled = [event for event in w.events if isinstance(event, TokensSettled)]
    assert [(event.reserved, event.used) for event in settled] == [(50, 20), (50, 20)]
