"""The directory of tokens: what it remembers and for how long, what it asks of its store, and what it does without one."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from headway.access import tokens
from headway.access.token_store import StoreFailed
from headway.access.tokens import TokenDirectory
from headway.core.caller import Caller, CallerLimits
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import AccessUnavailable, HeadwayError, Unauthenticated
from headway.core.secret import Secret
from support.memory_tokens import NOW_S, SERVER_KEY, MemoryTokenStore, stored, token_number

pytestmark = pytest.mark.anyio


@dataclass
class Case:
    store: MemoryTokenStore
    clock: ManualClock
    directory: TokenDirectory
    now_s: float = NOW_S

    async def caller(self, number: int = 1) -> Caller:
        return await self.directory.caller(token_number(number))

    async def refusal(self, number: int = 1) -> HeadwayError:
        with pytest.raises(HeadwayError) as caught:
            await self.caller(number)
        return caught.value

    def later(self, seconds: float) -> None:
        self.clock.advance(round(seconds * NS_PER_S))
        self.now_s += seconds

    async def background(self) -> None:
        """Wait for what is looked up in the background."""
        while self.directory._lookups:
            await asyncio.wait([*self.directory._lookups.values()])


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    store, clock = MemoryTokenStore(stored(1), stored(2)), ManualClock(7 * NS_PER_S)

    def now_s() -> float:
        return made.now_s

    made = Case(
        store, clock, TokenDirectory(store, SERVER_KEY, clock=clock, now_s=now_s, cache_s=4, outage_s=100)
    )
    yield made
    await made.directory.close()


async def test_a_token_is_answered_with_its_caller(case: Case) -> None:
    assert await case.caller() == Caller(
        token_id="tok_000000000001",
        tenant="t1",
        user="user-1",
        service_class="high",
        kind="service",
        limits=CallerLimits(requests_per_s=2.5, max_concurrent=3),
    )


async def test_the_store_is_asked_once_while_its_answer_counts(case: Case) -> None:
    for _ in range(3):
        await case.caller()
        case.later(0.6)
    assert case.store.num_asked == 1


async def test_a_caller_in_use_is_asked_about_again_without_waiting_for_it(case: Case) -> None:
    await case.caller()
    case.later(2)
    case.store.held = asyncio.Event()
    await case.caller()  # though the store does not answer
    await case.caller()
    await asyncio.sleep(0)
    assert case.store.num_asked == 2
    case.store.held.set()
    await case.background()
    case.later(3)  # longer ago than counts since the first answer, not since the second
    case.store.held = asyncio.Event()
    assert (await case.caller()).user == "user-1"
    case.store.held.set()


async def test_a_revoked_token_stops_working_once_the_answer_does_not_count_any_more(case: Case) -> None:
    await case.caller()
    await case.store.revoke("tok_000000000001", NOW_S)
    case.later(1.9)
    await case.caller()
    case.later(2.1)
    assert isinstance(await case.refusal(), Unauthenticated)


async def test_a_revoked_token_in_use_stops_at_half_the_time(case: Case) -> None:
    await case.caller()
    await case.store.revoke("tok_000000000001", NOW_S)
    case.later(2)
    await case.caller()
    await case.background()
    assert isinstance(await case.refusal(), Unauthenticated)


async def test_a_token_expires_on_the_second_whatever_is_remembered(case: Case) -> None:
    case.store.tokens["tok_000000000001"] = stored(1, expires_s=NOW_S + 1)
    await case.caller()
    case.now_s += 0.9
    await case.caller()
    case.now_s += 0.1
    assert isinstance(await case.refusal(), Unauthenticated)


async def test_unknown_revoked_and_expired_get_one_answer_after_one_question(case: Case) -> None:
    case.store.tokens["tok_000000000001"] = stored(1, revoked_s=NOW_S)
    case.store.tokens["tok_000000000002"] = stored(2, expires_s=NOW_S)
    answers = []
    for number in (1, 2, 3):
        asked = case.store.num_asked
        error = await case.refusal(number)
        await case.refusal(number)
        answers.append((type(error), error.message, error.code, error.param, case.store.num_asked - asked))
    assert answers == [answers[0]] * 3
    assert answers[0][0] is Unauthenticated
    assert answers[0][-1] == 1


async def test_the_log_names_what_was_revoked_and_holds_no_token(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    case.store.tokens["tok_000000000001"] = stored(1, revoked_s=NOW_S)
    await case.refusal(1)
    await case.refusal(3)
    assert [(record.getMessage(), record.__dict__["token_id"]) for record in caplog.records] == [
        ("a token is revoked and was shown", "tok_000000000001")
    ]
    assert "hw_" not in caplog.text


@pytest.mark.parametrize(
    "text", ["", "hw_", "hw_short", "sk-something", "hw_" + "=" * 43, "tok_000000000001"]
)
async def test_what_has_not_the_form_of_a_token_is_refused_unasked(case: Case, text: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await case.directory.caller(Secret(text))
    assert not text or text not in caught.value.message
    assert case.store.num_asked == 0


async def test_a_token_that_was_made_after_it_was_tried_works_soon(case: Case) -> None:
    await case.refusal(3)
    await case.store.create(stored(3))
    case.later(3.9)
    await case.refusal(3)
    case.later(0.1)
    assert (await case.caller(3)).user == "user-3"


async def test_a_flood_of_guesses_pushes_out_no_caller_and_takes_bounded_memory(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_UNKNOWN", 50)
    case.directory = TokenDirectory(case.store, SERVER_KEY, clock=case.clock, now_s=lambda: case.now_s)
    await case.caller()
    for number in range(100, 300):
        await case.refusal(number)
    assert len(case.directory._unknown) == 50
    case.store.failure = StoreFailed("locked", "memory")
    assert (await case.caller()).user == "user-1"


async def test_known_callers_take_bounded_memory(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_KNOWN", 3)
    case.directory = TokenDirectory(case.store, SERVER_KEY, clock=case.clock, now_s=lambda: case.now_s)
    for number in range(1, 9):
        case.store.tokens[f"tok_{number:012x}"] = stored(number)
        await case.caller(number)
    assert len(case.directory._known) == 3


async def test_many_who_show_one_token_at_once_ask_once(case: Case) -> None:
    case.store.held = asyncio.Event()
    asking = [asyncio.create_task(case.caller()) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    case.store.held.set()
    assert {caller.user for caller in await asyncio.gather(*asking)} == {"user-1"}
    assert case.store.num_asked == 1


async def test_one_who_leaves_takes_no_answer_from_others(case: Case) -> None:
    case.store.held = asyncio.Event()
    first, second = asyncio.create_task(case.caller()), asyncio.create_task(case.caller())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    case.store.held.set()
    assert (await second).user == "user-1"


async def test_when_the_store_fails_known_callers_go_on_and_others_get_503(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    await case.caller(1)
    case.store.failure = StoreFailed("locked", "/secret/place")
    case.later(50)
    assert (await case.caller(1)).user == "user-1"
    error = await case.refusal(2)
    assert isinstance(error, AccessUnavailable)
    assert (error.status, error.code, error.retry_after_s) == (503, "access_unavailable", 1.0)
    assert "another process holds it locked" in error.message
    assert "/secret/place" not in error.message
    assert [record.getMessage() for record in caplog.records] == [
        (
            "The store of tokens /secret/place cannot be used: another process holds it locked. "
            "Callers known here go on, others get 503."
        )
    ]


async def test_a_store_that_failed_is_left_alone_for_a_second(case: Case) -> None:
    case.store.failure = StoreFailed("unreachable", "memory")
    await case.refusal(1)
    await case.refusal(2)
    assert case.store.num_asked == 1
    case.later(1)
    case.store.failure = None
    assert (await case.caller(2)).user == "user-2"


async def test_no_known_caller_waits_for_a_store_that_is_known_to_fail(case: Case) -> None:
    await case.caller(1)
    case.store.failure = StoreFailed("slow", "memory")
    await case.refusal(2)
    case.later(10)
    case.store.held = asyncio.Event()
    assert (await case.caller(1)).user == "user-1"  # and it is found out whether the store answers again
    await asyncio.sleep(0)
    assert case.store.num_asked == 3
    case.store.failure = None
    case.store.held.set()
    await case.background()
    case.later(1.9)
    await case.caller(1)
    assert case.store.num_asked == 3


async def test_an_outage_is_outlasted_so_long_and_no_longer(case: Case) -> None:
    await case.caller(1)
    case.store.failure = StoreFailed("gone", "memory")
    case.later(99.9)
    await case.caller(1)
    case.later(0.1)
    assert isinstance(await case.refusal(1), AccessUnavailable)


async def test_a_token_expires_during_an_outage_too(case: Case) -> None:
    case.store.tokens["tok_000000000001"] = stored(1, expires_s=NOW_S + 50)
    await case.caller(1)
    case.store.failure = StoreFailed("gone", "memory")
    case.later(49)
    await case.caller(1)
    case.later(1)
    assert isinstance(await case.refusal(1), Unauthenticated)


async def test_after_an_outage_a_revoked_token_stops(case: Case) -> None:
    await case.caller(1)
    case.store.failure = StoreFailed("gone", "memory")
    case.later(10)
    await case.caller(1)
    case.store.failure = None
    await case.store.revoke("tok_000000000001", NOW_S)
    case.later(1)
    await case.caller(1)  # has the store asked
    await case.background()
    assert isinstance(await case.refusal(1), Unauthenticated)


async def test_no_more_wait_for_the_store_than_it_can_answer(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_LOOKUPS", 5)
    await case.caller(1)
    case.later(10)
    case.store.held = asyncio.Event()
    waiting = [asyncio.create_task(case.refusal(number)) for number in range(100, 105)]
    await asyncio.sleep(0)
    assert isinstance(await case.refusal(2), AccessUnavailable)
    assert (await case.caller(1)).user == "user-1"
    case.store.held.set()
    assert {type(error) for error in await asyncio.gather(*waiting)} == {Unauthenticated}
    assert (await case.caller(2)).user == "user-2"


async def test_nobody_waits_for_ever_for_a_store_that_hangs(case: Case) -> None:
    case.directory = TokenDirectory(case.store, SERVER_KEY, clock=case.clock, timeout_s=0.001)
    case.store.held = asyncio.Event()
    error = await case.refusal(1)
    assert isinstance(error, AccessUnavailable)
    assert "does not answer in time" in error.message
    case.store.held.set()
    await case.background()
    assert (await case.caller(1)).user == "user-1"  # the answer that came late counts


async def test_a_store_that_answers_with_another_token_lets_nobody_in(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.store.tokens["tok_000000000001"] = stored(2)
    monkeypatch.setattr(case.store, "find_by_digest", lambda _: case.store.show("tok_000000000001"))
    assert isinstance(await case.refusal(1), Unauthenticated)


async def test_another_servers_key_knows_nobody(case: Case) -> None:
    case.directory = TokenDirectory(case.store, bytes(32), clock=case.clock)
    assert isinstance(await case.refusal(1), Unauthenticated)


async def test_closing_ends_what_is_looked_up(case: Case) -> None:
    case.store.held = asyncio.Event()
    asking = asyncio.create_task(case.caller())
    await asyncio.sleep(0)
    await case.directory.close()
    assert case.directory._lookups == {}
    with pytest.raises(asyncio.CancelledError):
        await asking
