"""What operators and listeners hear of callers: standings now and then, risks and settled tokens always."""

import json

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headway.access.token_store import StoreFailed
from headway.core.caller import Caller, CallerLimits
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.events import Event, RiskAssessed, TokensSettled
from headway.flow.config import LimitsConfig
from headway.flow.local import LocalLimits
from headway.flow.signals import Signal
from headway.gateway.door import Door
from headway.gateway.standings import EVERY_NS, MAX_WRITING, Standings

pytestmark = pytest.mark.anyio

ANN = Caller(token_id="tok_ann", user="ann", limits=CallerLimits(tokens_per_min=10_000))


class Shelf:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes, int]] = []
        self.failure: Exception | None = None
        self.has_two = anyio.Event()

    async def put(self, token_id: str, standing: bytes, now_s: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.kept.append((token_id, standing, now_s))
        if len(self.kept) == 2:
            self.has_two.set()


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
        await anyio.lowlevel.checkpoint()  # they leave `tasks`


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
    kept = json.loads(standing)
    assert kept["as_of"] == "2027-01-15T08:00:00Z"
    assert "malformed" in json.dumps(kept["why"])
    w.clock.advance(EVERY_NS)
    await w.limits.note(ANN, Signal("malformed"))
    await w.call()
    await w.written()
    assert len(w.shelf.kept) == 2


async def test_how_a_burst_ended_is_kept_though_nobody_calls_any_more() -> None:
    w = Watched()
    for _ in range(8):
        await w.limits.note(ANN, Signal("malformed"))
        await w.call()
        await w.written()
    assert [levels(standing) for _, standing, _ in w.shelf.kept] == [[1.0]]
    w.standings.note_waiting()
    await w.written()
    assert len(w.shelf.kept) == 1  # too soon
    w.clock.advance(EVERY_NS)
    w.standings.note_waiting()
    await w.written()
    assert len(w.shelf.kept) == 2
    (level,) = levels(w.shelf.kept[-1][1])
    assert level == pytest.approx(8, abs=0.3)  # five seconds are little of its half-life
    w.clock.advance(EVERY_NS)
    w.standings.note_waiting()
    await w.written()
    assert len(w.shelf.kept) == 2  # nothing new
    await w.door.close()


def levels(standing: bytes) -> list[float]:
    return [signal["level"] for signal in json.loads(standing)["why"]]


async def test_those_who_wait_are_written_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.gateway.standings.EVERY_NS", NS_PER_S // 100)
    w = Watched()
    for _ in range(2):
        await w.limits.note(ANN, Signal("malformed"))
        await w.call()
        await w.written()
    w.clock.advance(NS_PER_S)
    with anyio.fail_after(5):
        await w.shelf.has_two.wait()
    await w.door.close()


async def test_more_standings_than_may_be_written_at_once_wait_their_turn() -> None:
    w = Watched()
    callers = [
        msgspec.structs.replace(ANN, token_id=f"tok_{n}", user=f"u{n}") for n in range(MAX_WRITING + 3)
    ]
    for caller in callers:
        w.standings.note(caller, w.limits)
    assert len(w.standings.tasks) == MAX_WRITING
    await w.written()
    w.standings.note_waiting()
    await w.written()
    assert {token_id for token_id, _, _ in w.shelf.kept} == {caller.token_id for caller in callers}
    await w.door.close()


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
