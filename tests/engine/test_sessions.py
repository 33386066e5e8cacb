"""Conversations: who is evicted for whom, what is released, and when one is forgotten."""

from pathlib import Path

import pytest

from headway.core.clock import NS_PER_S, ManualClock
from headway.core.config import SchedulerConfig
from headway.core.messages import Cancel, ReleaseSession, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine import sessions as sessions_module
from headway.engine.engine import Engine
from headway.engine.sessions import TRANSITIONS, Sessions, SessionState
from headway.kv.blocks import KvBlocks
from headway.runner.fake import FakeRunner
from support.engine_on_fake import (
    Received,
    assert_idle,
    make_engine,
    make_request,
    prompt,
    run_alone,
    step_checked,
)
from support.kv_jobs import ManualJobs
from support.kv_tiers import make_tiers

HOT = SamplingParams(temperature=1.0, seed=3)


class Talk:
    """An engine of 16 blocks, driven to rest after every request."""

    def __init__(self, folder: Path | None = None, idle_s: float = 900.0) -> None:
        self.clock = ManualClock()
        self.jobs = ManualJobs()
        tiers = None
        if folder is not None:
            tiers, _ = make_tiers(self.jobs, folder=folder)
        limits = SchedulerConfig(max_draft_tokens=0, session_idle_s=idle_s)
        self.engine: Engine = make_engine(
            FakeRunner(num_blocks=16, max_context=1024), self.clock, limits, tiers
        )
        self.got = Received()
        self.num_releases = 0

    def run(self) -> None:
        while self.engine.has_work:
            if step_checked(self.engine, self.got) is None:
                assert self.jobs.run(), "the engine waits for nothing"
        self.jobs.run()

    def serve(self, request: Request) -> int:
        """Return how many of its tokens were computed in its prompt."""
        before = self.engine.statistics().prefill_tokens_total
        self.engine.handle(Submit(request))
        self.run()
        assert self.got.of(request.request_id) == run_alone(request).of(request.request_id)
        return self.engine.statistics().prefill_tokens_total - before

    def release(self, session: str, tenant: str = "") -> bool:
        self.num_releases += 1
        release_id = self.num_releases
        self.engine.handle(ReleaseSession(release_id=release_id, tenant=tenant, session=session))
        outputs = step_checked(self.engine, self.got)
        assert outputs is not None
        (released,) = outputs.released
        assert released.release_id == release_id
        self.jobs.run()
        return released.found

    @property
    def states(self) -> tuple[int, int, int]:
        """How many conversations are active, idle and parked."""
        stats = self.engine.statistics()
        return stats.num_sessions_active, stats.num_sessions_idle, stats.num_sessions_parked


def turn(name: str, session: str | None, length: int = 96, start: int = 0, tenant: str = "") -> Request:
    return make_request(name, prompt(length, start), 4, HOT, session=session, tenant=tenant)


def test_every_state_is_reached_and_only_reclaimed_may_be_an_end() -> None:
    assert set(TRANSITIONS.values()) == set(SessionState)
    assert {state for state, _ in TRANSITIONS} == set(SessionState)


def test_an_unrelated_request_does_not_evict_the_conversation_about_to_go_on() -> None:
    """Scenario 6. The conversation is the least recently used; whatever else was said goes first."""
    for session, computed in (("talk", 16), (None, 112)):
        talk = Talk()
        talk.serve(turn("first", session))
        talk.serve(turn("unrelated", None, 140, 5))
        talk.serve(turn("another", None, 140, 9))
        assert talk.serve(turn("second", session, 112)) == computed


def test_the_least_recently_used_conversation_goes_first() -> None:
    talk = Talk()
    talk.serve(turn("a1", "a", 64, 0))
    talk.serve(turn("b1", "b", 64, 3))
    talk.serve(turn("a2", "a", 64, 0))
    talk.serve(turn("large", None, 190, 5))  # all blocks but four
    assert talk.serve(turn("a3", "a", 64, 0)) == 16
    assert talk.serve(turn("b3", "b", 64, 3)) == 64


def test_conversations_cannot_hold_on_to_everything() -> None:
    talk = Talk()
    for number in range(6):
        talk.serve(turn(f"r{number}", f"s{number}", 60, number))
    assert talk.engine.statistics().num_free_blocks == 16
    talk.serve(turn("large", None, 240, 9))
    assert_idle(talk.engine)


def test_what_a_conversation_no_longer_says_is_kept_no_more() -> None:
    talk = Talk()
    talk.serve(turn("first", "talk", 96, 0))
    talk.serve(turn("edited", "talk", 64, 3))  # the user began anew
    talk.serve(turn("unrelated", None, 128, 9))
    assert talk.serve(turn("goes on", "talk", 64, 3)) == 16
    assert talk.serve(turn("back", None, 96, 0)) > 16


def test_a_release_gives_back_what_only_that_conversation_keeps() -> None:
    talk = Talk()
    talk.serve(turn("a", "a", 96))
    talk.serve(turn("b", "b", 48))  # begins like a
    assert talk.engine.statistics().num_cached_blocks == 6
    assert talk.release("a")
    assert talk.engine.statistics().num_cached_blocks == 3
    assert talk.serve(turn("again", "b", 48)) == 16
    assert talk.release("b")
    assert talk.engine.statistics().num_cached_blocks == 0
    assert talk.states == (0, 0, 0)
    talk.engine.check()


def test_only_a_known_conversation_of_the_same_tenant_is_released() -> None:
    talk = Talk()
    talk.serve(turn("a", "a", tenant="mine"))
    assert not talk.release("a")
    assert not talk.release("b", "mine")
    assert talk.release("a", "mine")
    assert not talk.release("a", "mine")


def test_a_release_lets_running_requests_finish_and_then_takes_their_blocks() -> None:
    talk = Talk()
    request = turn("a", "a")
    talk.engine.handle(Submit(request))
    step_checked(talk.engine, talk.got)
    assert talk.release("a")
    assert talk.states == (0, 0, 0)
    talk.run()
    assert talk.got.of("a") == run_alone(request).of("a")
    assert talk.engine.statistics().num_cached_blocks == 0
    assert not talk.release("a")


def test_a_conversation_that_goes_on_after_its_release_is_alive() -> None:
    talk = Talk()
    talk.engine.handle(Submit(turn("a", "a")))
    step_checked(talk.engine, talk.got)
    assert talk.release("a")
    talk.engine.handle(Submit(turn("b", "a")))
    talk.run()
    assert talk.states == (0, 1, 0)
    assert talk.engine.statistics().num_cached_blocks > 0


def test_states_follow_where_the_conversation_is(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.engine.handle(Submit(turn("a", "a")))
    step_checked(talk.engine, talk.got)
    assert talk.states == (1, 0, 0)
    talk.run()
    assert talk.states == (0, 1, 0)
    talk.serve(turn("large", None, 240, 9))
    assert talk.states == (0, 0, 1)
    assert talk.serve(turn("goes on", "a")) == 16
    assert talk.states == (0, 1, 0)


def test_a_release_removes_what_was_parked(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.serve(turn("a", "a"))
    talk.serve(turn("large", None, 240, 9))
    large = talk.engine.statistics().disk_kv_bytes
    assert large > 0
    assert talk.release("a")
    assert talk.engine.statistics().disk_kv_bytes == 0
    assert talk.serve(turn("anew", "a")) == 96


def test_without_tiers_an_evicted_conversation_is_remembered_until_it_expires() -> None:
    talk = Talk(idle_s=10)
    talk.serve(turn("a", "a"))
    talk.serve(turn("large", None, 240, 9))
    assert talk.states == (0, 0, 0)
    assert talk.release("a")
    talk.serve(turn("b", "b"))
    talk.serve(turn("larger", None, 240, 9))
    talk.clock.advance(10 * NS_PER_S)
    talk.serve(turn("tick", None, 1))
    assert not talk.release("b")


def test_who_rests_too_long_is_kept_no_longer_than_others() -> None:
    talk = Talk(idle_s=10)
    talk.serve(turn("old", "old", 64, 0))
    talk.clock.advance(6 * NS_PER_S)
    talk.serve(turn("young", "young", 64, 3))
    talk.clock.advance(4 * NS_PER_S)
    talk.serve(turn("large", None, 190, 9))
    assert talk.states == (0, 1, 0)
    assert talk.serve(turn("young again", "young", 64, 3)) == 16
    assert talk.serve(turn("old again", "old", 64, 0)) == 64


def test_a_cancelled_request_leaves_the_conversation_as_it_was() -> None:

    talk = Talk()
    talk.serve(turn("a", "a"))
    talk.engine.handle(Submit(turn("b", "a", 112)))
    talk.engine.handle(Cancel(request_id="b"))
    while talk.engine.has_work:
        step_checked(talk.engine, talk.got)
    talk.serve(turn("unrelated", None, 140, 9))
    assert talk.serve(turn("c", "a", 112)) == 16


def test_several_choices_belong_to_one_conversation() -> None:
    talk = Talk()
    request = make_request("a", prompt(60), 20, HOT, n=2, session="a")
    talk.engine.handle(Submit(request))
    talk.run()
    assert talk.states == (0, 1, 0)
    assert talk.release("a")
    assert talk.engine.statistics().num_cached_blocks == 0


def test_a_crowd_of_conversations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_RESTING", 3)
    talk = Talk()
    for number in range(5):
        talk.serve(turn(f"r{number}", f"s{number}", 20, number))
    assert [talk.release(f"s{number}") for number in range(5)] == [False, False, True, True, True]


def test_a_conversation_too_short_for_a_block_is_known() -> None:
    talk = Talk()
    talk.serve(turn("a", "a", 3))
    assert talk.states == (0, 1, 0)
    assert talk.release("a")


def test_nothing_is_remembered_of_requests_without_a_session() -> None:
    sessions = Sessions(KvBlocks(4, 16), NS_PER_S, None)
    request = turn("a", None)
    sessions.enter(request)
    sessions.leave(request, 0)
    sessions.check()
    assert not sessions.release(("", ""))
