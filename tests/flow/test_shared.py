"""Limits with a store that comes and goes, as the breaker sees it; with a real Redis: test_redis_outage."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from headway.core.caller import Caller, CallerLimits
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import ConfigError, RateLimited
from headway.core.quota import NO_QUOTAS
from headway.flow import build
from headway.flow.breaker import MAX_FAILURES, Phase
from headway.flow.config import LimitsConfig
from headway.flow.limits import Admission, Reservation, Shown
from headway.flow.local import LocalLimits
from headway.flow.shared import SharedLimits, StoreGone
from headway.flow.signals import Signal

USER = Caller(user="u")

pytestmark = pytest.mark.anyio


@dataclass
class Store:
    """Answers, or does not."""

    is_gone: bool = False
    is_holding: bool = True
    num_asked: int = 0
    refusal: Exception | None = None
    postponed: list[tuple[str, int]] = field(default_factory=list)
    settled: list[tuple[str, int]] = field(default_factory=list)
    changes: list[tuple[bool, str]] = field(default_factory=list)
    num_paid: int = 0
    num_owed: int = 0

    def note_change(self, is_degraded: bool, reason: str) -> None:
        self.changes.append((is_degraded, reason))

    def _ask(self) -> None:
        self.num_asked += 1
        if self.is_gone:
            raise StoreGone("it is gone")
        if self.refusal:
            raise self.refusal

    async def admit(self, caller: Caller) -> Admission:
        self._ask()
        return Admission(call_id=f"s{self.num_asked}", caller=caller, quotas=NO_QUOTAS, place="shared")

    async def pace(self, caller: Caller) -> None:  # noqa: ARG002
        self._ask()

    async def reserve(self, admission: Admission, num_tokens: int) -> Reservation:
        self._ask()
        return Reservation(admission=admission, num_tokens=num_tokens, quotas=NO_QUOTAS)

    async def settle(self, reservation: Reservation, num_used: int) -> None:
        self._ask()
        self.settled.append((reservation.admission.call_id, num_used))

    async def release(self, admission: Admission) -> None:
        self._ask()
        self.settled.append((admission.call_id, 0))

    async def note(self, caller: Caller, signal: Signal) -> None:  # noqa: ARG002
        self._ask()

    async def show(self, caller: Caller) -> Shown:  # noqa: ARG002
        self._ask()
        return Shown(risk=2, requests_per_s=40, base_per_s=100, why=(), num_calls=0, quotas=NO_QUOTAS)

    def holds(self, admission: Admission) -> bool:  # noqa: ARG002
        return self.is_holding

    def postpone(self, admission: Admission, num_used: int) -> None:
        self.postponed.append((admission.call_id, num_used))

    async def beat(self) -> int:
        self._ask()
        return 4

    async def pay(self) -> None:
        self.num_paid += 1

    async def aclose(self) -> None:
        pass


def shared(
    config: LimitsConfig = LimitsConfig(tokens_per_min=4000),  # noqa: B008  # frozen
) -> tuple[SharedLimits, Store, ManualClock]:
    store, clock = Store(), ManualClock()
    return SharedLimits(store, config, clock, on_change=store.note_change), store, clock


async def fail(limits: SharedLimits, store: Store) -> None:
    store.is_gone = True
    for _ in range(MAX_FAILURES):
        await limits.release(await limits.admit(USER))
    assert limits.state().phase is Phase.OPEN


async def test_the_pace_is_the_stores_and_without_it_a_part_here() -> None:
    limits, store, _ = shared(LimitsConfig(requests_per_s=8, floor_per_s=1))
    for _ in range(20):
        await limits.pace(USER)
    store.refusal = RateLimited("no")
    with pytest.raises(RateLimited):
        await limits.pace(USER)
    store.refusal = None
    await limits.beat()  # four gateways
    store.is_gone = True
    num_granted = 0
    with suppress(RateLimited):
        for _ in range(10):
            await limits.pace(USER)
            num_granted += 1
    assert num_granted == 8 // 4


async def test_a_store_that_answers_decides() -> None:
    limits, store, _ = shared()
    reservation = await limits.reserve(await limits.admit(USER), 100)
    await limits.settle(reservation, 60)
    assert store.settled == [("s1", 60)]
    store.refusal = RateLimited("no")
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(RateLimited):
            await limits.admit(USER)
    assert limits.state().phase is Phase.CLOSED
    assert limits.state().num_fallbacks == 0


async def test_a_store_that_is_gone_is_soon_no_longer_asked_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits, store, _ = shared()
    await limits.beat()
    await fail(limits, store)
    asked = store.num_asked
    for _ in range(20):
        assert (await limits.admit(USER)).place == "local"
    assert store.num_asked == asked
    assert [record.getMessage() for record in caplog.records] == [
        "limits are counted in this gateway alone, everybody's divided by 4: it is gone"
    ]
    state = limits.state()
    assert (state.num_gateways, state.num_fallbacks) == (4, MAX_FAILURES + 20)


async def test_without_the_store_everybody_has_his_part_of_his_limits() -> None:
    limits, store, _ = shared(LimitsConfig(requests_per_s=40, tokens_per_min=4000))
    await limits.beat()
    store.is_gone = True
    admission = await limits.admit(USER)
    reservation = await limits.reserve(admission, 600)
    assert reservation.quotas.requests is not None
    assert reservation.quotas.tokens is not None
    assert reservation.quotas.requests.limit == 10
    assert (reservation.quotas.tokens.limit, reservation.quotas.tokens.remaining) == (1000, 400)


async def test_a_request_larger_than_the_part_but_not_the_whole_is_no_mistake_of_its_caller() -> None:
    limits, store, _ = shared()
    await limits.beat()
    store.is_gone = True
    reservation = await limits.reserve(await limits.admit(USER), 3000)
    assert reservation.num_tokens == 3000
    await limits.settle(reservation, 100)


async def test_one_call_tries_whether_it_is_back_and_then_all_ask_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits, store, clock = shared()
    await fail(limits, store)
    clock.advance(NS_PER_S)
    await limits.admit(USER)
    assert limits.state().phase is Phase.OPEN
    store.is_gone = False
    clock.advance(2 * NS_PER_S)
    assert (await limits.admit(USER)).place == "shared"
    assert limits.state().phase is Phase.CLOSED
    assert caplog.records[-1].getMessage() == "limits are shared by all gateways again"
    assert store.changes == [(True, "it is gone"), (False, "")]


async def test_a_call_of_which_the_store_holds_nothing_does_not_try_whether_it_is_back() -> None:
    limits, store, clock = shared(LimitsConfig())
    admission = await limits.admit(USER)
    await fail(limits, store)
    store.is_gone, store.is_holding = False, False
    clock.advance(NS_PER_S)
    reservation = await limits.reserve(admission, 100)
    await limits.settle(reservation, 10)
    assert limits.state().phase is Phase.OPEN
    assert store.postponed[-1] == (admission.call_id, 10)


async def test_a_call_is_settled_where_it_was_granted() -> None:
    limits, store, clock = shared()
    from_store = await limits.reserve(await limits.admit(USER), 100)
    await fail(limits, store)
    from_here = await limits.reserve(await limits.admit(USER), 100)
    await limits.settle(from_store, 10)
    assert store.postponed == [("s1", 10)]
    store.is_gone = False
    clock.advance(NS_PER_S)
    await limits.beat()
    await limits.settle(from_here, 20)
    assert store.settled == []
    assert store.num_paid == 1


async def test_a_store_that_goes_between_two_decisions_of_a_call_is_told_to_forget_it() -> None:
    limits, store, _ = shared()
    admission = await limits.admit(USER)
    store.is_gone = True
    reservation = await limits.reserve(admission, 100)
    assert reservation.admission.place == "local"
    assert store.postponed == [(admission.call_id, 0)]


async def test_a_release_that_the_store_does_not_hear_is_owed() -> None:
    limits, store, _ = shared()
    admission = await limits.admit(USER)
    store.is_gone = True
    await limits.release(admission)
    await limits.note(USER, Signal("malformed"))
    assert store.postponed == [(admission.call_id, 0)]
    shown = await limits.show(USER)
    assert [c.signal for c in shown.why] == ["malformed"]


async def test_limits_are_in_memory_unless_a_store_is_named() -> None:
    assert isinstance(await build.open_limits(LimitsConfig(), ManualClock()), LocalLimits)


async def test_a_store_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "headway.flow.redis", None)
    with pytest.raises(ConfigError, match=r'pip install "headway\[gateway\]"'):
        await build.open_limits(LimitsConfig(redis_url="redis://127.0.0.1:1/0"), ManualClock())


def test_only_what_talks_to_redis_imports_its_library() -> None:
    importing = {
        path.name
        for path in Path(build.__file__).parent.glob("*.py")
        if re.search(r"^(from|import) redis\b", path.read_text(), re.MULTILINE)
    }
    assert importing == {"redis.py", "redis_pipe.py"}


async def test_what_operators_see_can_be_sent() -> None:
    limits = LocalLimits(LimitsConfig(), ManualClock())
    await limits.note(USER, Signal("malformed"))
    shown = msgspec.to_builtins(await limits.show(USER))
    assert shown["requests_per_s"] == pytest.approx(98.5)
    assert shown["why"][0]["words"] == "malformed requests: 1.0 of late"


async def test_own_limits_count_without_the_store_too() -> None:
    limits, store, _ = shared()
    store.is_gone = True
    caller = Caller(user="slow", limits=CallerLimits(requests_per_s=1))
    await limits.admit(caller)
    with pytest.raises(RateLimited):
        await limits.admit(caller)
