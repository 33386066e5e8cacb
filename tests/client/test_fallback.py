"""Scenario 12: every mix of what two endpoints may do ends with one whole answer or one typed error, by the deadline."""

import asyncio
import itertools
import random
from pathlib import Path

import pytest

from headway.client import (
    Answer,
    AnswerCut,
    CallError,
    CannedAnswer,
    Client,
    DeadlinePassed,
    Deadlines,
    Endpoint,
    Hedging,
    Refused,
    Throttling,
    Unreachable,
)
from support.endpoint_scripts import ANSWERS, always, good
from support.scripted_endpoint import Script, World, world
from support.scripted_server import Reply, refusal
from support.virtual_loop import VirtualLoop, run_virtually

NOT_THERE = "refuses-connections"
FATES = [*ANSWERS, NOT_THERE]
FIRST_TOKEN_MS, TOTAL_MS = 4000, 6000
DEADLINES = Deadlines(first_token_s=FIRST_TOKEN_MS / 1000, total_s=TOTAL_MS / 1000)
MESSAGES = [{"role": "user", "content": "hi"}]

EARLY = {
    "limited": (Refused, 429),
    "busy": (Refused, 503),
    "broken": (Refused, 500),
    "unknown": (Refused, 404),
    "hangs": (DeadlinePassed, 504),
    "stalls": (DeadlinePassed, 504),
    "closes": (Unreachable, 502),
    "dies-early": (AnswerCut, 502),
    "errs-early": (Refused, 503),
    "garbage": (CallError, 502),
    "no-http": (Unreachable, 502),
    NOT_THERE: (Unreachable, 502),
}
"""What fails before the first token, with how a call ends that has nobody else to ask."""
LATE = {
    "dies": (AnswerCut, 502),
    "errs": (Refused, 500),
    "no-done": (AnswerCut, 502),
    "goes-silent": (DeadlinePassed, 504),
}
"""What fails after it: whatever else there is to ask, nothing may follow the text that was shown."""
WHOLE = ("good", "whole")


def client(w: World, *names: str, **rules: object) -> Client:
    endpoints = [Endpoint(url=f"http://{name}", model="m", name=name) for name in names]
    settings: dict[str, object] = {
        "deadlines": DEADLINES,
        "http": w.http,
        "clock": w.clock,
        "throttling": None,
    }
    return Client(endpoints, **(settings | rules))  # type: ignore[arg-type]


async def outcome(client: Client, clock: VirtualLoop) -> tuple[Answer | CallError, str, float]:
    """What a call ended with, the text that was handed on, and how long it took in milliseconds."""
    start = clock.now
    async with client.stream(MESSAGES) as stream:
        try:
            ended: Answer | CallError = await stream.collect()
        except CallError as error:
            ended = error
    return ended, stream.text, (clock.now - start) / 1e6


def check(
    first: str, second: str, ended: Answer | CallError, text: str, took_ms: float, canned: bool
) -> None:
    """Compare an outcome with what the two fates lead to."""
    start_ms = 0.0
    for name, fate in (("a", first), ("b", second)):
        if fate in WHOLE or (fate == "slow" and name == "b" and start_ms < 1000):
            assert isinstance(ended, Answer)
            assert (ended.text, ended.endpoint, ended.finish_reason) == (name * 3, f"{fate}-{name}", "stop")
            return
        if fate in LATE:
            error, status = LATE[fate]
            assert type(ended) is error
            assert (ended.status, ended.text, text) == (status, name, name)
            assert took_ms <= TOTAL_MS
            return
        if fate == "wrong":
            assert type(ended) is Refused
            assert (ended.status, text) == (400, "")
            return
        if fate in ("hangs", "stalls", "slow"):
            start_ms = FIRST_TOKEN_MS / 2
        elif fate not in ("closes", NOT_THERE, "no-http"):
            start_ms += 50
    assert text == ""
    assert took_ms <= FIRST_TOKEN_MS
    kinds = {EARLY.get(fate, (DeadlinePassed, 504)) for fate in (first, second)}
    if canned and kinds != {(Refused, 404)} and not (isinstance(ended, CallError) and ended.status == 404):
        assert isinstance(ended, Answer)
        assert (ended.text, ended.endpoint, ended.finish_reason) == ("", "", "fallback")
        return
    assert isinstance(ended, CallError)
    assert any(isinstance(ended, error) and ended.status == status for error, status in kinds)
    if (Refused, 429) in kinds:
        assert (ended.status, ended.retry_after_s) == (429, 7)


@pytest.mark.parametrize("canned", [False, True])
def test_every_mix_of_two_endpoints(tmp_path: Path, canned: bool) -> None:
    scripts = {f"{fate}-{name}": always(reply(name)) for fate, reply in ANSWERS.items() for name in "ab"}

    async def main(clock: VirtualLoop) -> None:
        async with world(clock, tmp_path, **scripts) as w:
            mixes = list(itertools.product(FATES, FATES))
            clients = [
                client(
                    w,
                    f"{first}-a",
                    f"{second}-b",
                    last_resort=CannedAnswer() if canned else None,
                )
                for first, second in mixes
            ]
            outcomes = await asyncio.gather(*(outcome(each, clock) for each in clients))
            for (first, second), (ended, text, took_ms) in zip(mixes, outcomes, strict=True):
                try:
                    check(first, second, ended, text, took_ms, canned)
                except AssertionError as error:
                    raise AssertionError(
                        f"{first}, then {second}: {ended!r}, {text!r}, {took_ms} ms"
                    ) from error

    run_virtually(main)


@pytest.mark.parametrize("seed", range(3))
def test_long_use_of_chains_whose_endpoints_do_anything(tmp_path: Path, seed: int) -> None:
    """With hedges, throttling and a mood for each call, what can be said before is only what must always hold."""
    draws = random.Random(seed)
    moods = [draws.choice([*ANSWERS, "good", "good", "good"]) for _ in range(997)]

    def moody(word: str, offset: int) -> Script:
        return lambda number, _: ANSWERS[moods[(number * 7 + offset) % len(moods)]](word)

    async def use(w: World) -> None:
        hedging = Hedging(share=0.5, min_samples=1, percentile=0.5)
        chain = client(
            w,
            "a",
            "b",
            "c",
            hedging=hedging,
            throttling=Throttling(min_requests=5),
            draws=random.Random(seed),
        )
        for _ in range(12):
            ended, text, took_ms = await outcome(chain, w.clock)
            assert took_ms <= (TOTAL_MS if text else FIRST_TOKEN_MS)
            assert len(ended.attempts) <= 3 + 5 + 1
            if isinstance(ended, Answer):
                assert ended.text == text == ended.endpoint.upper() * 3
            else:
                assert ended.text == text
                assert text in ("", "A", "B", "C")
                assert text or ended.status != 200

    async def main(clock: VirtualLoop) -> None:
        scripts = {name: moody(name.upper(), draws.randrange(997)) for name in "abc"}
        async with world(clock, tmp_path, **scripts) as w:
            await asyncio.gather(*(use(w) for _ in range(10)))

    run_virtually(main)


def test_the_canned_answer_is_handed_on_like_any_other(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        async with world(clock, tmp_path) as w:
            ended, text, _ = await outcome(client(w, "nobody", last_resort=CannedAnswer(text="?")), clock)
            assert isinstance(ended, Answer)
            assert (ended.text, text, ended.finish_reason) == ("?", "?", "fallback")

    run_virtually(main)


def test_a_chain_of_three_goes_on_to_the_last(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        scripts = {name: always(ANSWERS[name]("A")) for name in ("busy", "hangs")} | {
            "good": always(good("C"))
        }
        async with world(clock, tmp_path, **scripts) as w:
            ended, _, took_ms = await outcome(client(w, "busy", "hangs", "good"), clock)
            assert isinstance(ended, Answer)
            assert ended.text == "CCC"
            assert [(each.endpoint, each.why, each.outcome, each.status) for each in ended.attempts] == [
                ("busy", "first", "busy", 503),
                ("hangs", "fallback", "slow", None),
                ("good", "fallback", "answered", None),
            ]
            assert took_ms == pytest.approx(2000 + 80, abs=5)
            assert ended.ttft_ns == pytest.approx(2050e6, abs=5e6)

    run_virtually(main)


def test_a_lone_endpoint_is_retried_within_the_budget_and_the_deadline(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        replies = [refusal("503 Busy"), refusal("500 Oh"), good("A")]
        async with world(clock, tmp_path, e=lambda number, _: replies[number]) as w:
            ended, _, took_ms = await outcome(client(w, "e"), clock)
            assert isinstance(ended, Answer)
            assert [each.why for each in ended.attempts] == ["first", "retry", "retry"]
            assert 75 + 225 + 80 <= took_ms <= 125 + 375 + 81

    run_virtually(main)


def test_one_budget_for_the_whole_call(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        script = always(refusal("503 Busy", "Retry-After-Ms: 1\r\n"))
        async with world(clock, tmp_path, a=script, b=script) as w:
            ended, _, _ = await outcome(client(w, "a", "b", max_retries=2), clock)
            assert isinstance(ended, Refused)
            assert len(ended.attempts) == 2 + 2
            assert sum(len(endpoint.asked) for endpoint in w.endpoints.values()) == 4

    run_virtually(main)


def test_retry_after_is_waited_for(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        replies = [refusal("429 Slow down", "Retry-After: 2\r\n"), good("A")]
        async with world(clock, tmp_path, e=lambda number, _: replies[number]) as w:
            ended, _, took_ms = await outcome(client(w, "e"), clock)
            assert isinstance(ended, Answer)
            assert took_ms == pytest.approx(2080, abs=5)

    run_virtually(main)


def test_an_upstreams_429_stays_429_with_its_retry_after(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        body = b'{"error": {"message": "Too many tokens.", "type": "tokens", "code": "rate_limit_exceeded"}}'
        head = b"HTTP/1.1 429 X\r\nRetry-After: 30\r\nContent-Length: %d\r\n\r\n" % len(body)
        async with world(clock, tmp_path, e=always(Reply(head=head, sent=[(0, body)]))) as w:
            ended, _, took_ms = await outcome(client(w, "e"), clock)
            assert isinstance(ended, Refused)
            assert (ended.status, ended.code, ended.type) == (429, "rate_limit_exceeded", "tokens")
            assert (ended.message, ended.retry_after_s) == ("Too many tokens.", 30)
            assert took_ms < 100  # it is told at once: waiting would not help by the deadline

    run_virtually(main)


def test_a_loser_is_hung_up_on_when_its_time_is_up(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        async with world(clock, tmp_path, a=always(ANSWERS["hangs"]("A")), b=always(good("B"))) as w:
            await outcome(client(w, "a", "b"), clock)
            await asyncio.sleep(0)
            assert w.endpoints["a"].hung_up_ms == [pytest.approx(2000, abs=5)]

    run_virtually(main)


def test_a_hedge_wins_over_a_late_first_token(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        def usually_quick(number: int, _: object) -> Reply:
            return good("A", ttft_ms=1500 if number == 20 else 50, num_words=100)

        async with world(clock, tmp_path, e=usually_quick) as w:
            hedged = client(w, "e", hedging=Hedging(share=0.05, min_samples=20))
            for _ in range(20):
                ended, _, _ = await outcome(hedged, clock)
                assert isinstance(ended, Answer)
                assert len(ended.attempts) == 1
            ended, text, took_ms = await outcome(hedged, clock)
            assert isinstance(ended, Answer)
            assert text == "A" * 100
            assert [(each.why, each.outcome) for each in ended.attempts] == [
                ("first", "lost"),
                ("hedge", "answered"),
            ]
            assert took_ms == pytest.approx(50 + 50 + 1000, abs=10)
            assert w.endpoints["e"].hung_up_ms == [pytest.approx(clock.now / 1e6 - 1000 - 1000, abs=10)]

    run_virtually(main)


def test_an_endpoint_that_refuses_everything_is_spared(tmp_path: Path) -> None:
    async def main(clock: VirtualLoop) -> None:
        async with world(clock, tmp_path, a=always(refusal("503 Busy")), b=always(good("B"))) as w:
            throttled = client(w, "a", "b", throttling=Throttling(min_requests=10))
            for _ in range(200):
                ended, _, _ = await outcome(throttled, clock)
                assert isinstance(ended, Answer)
            assert 10 <= len(w.endpoints["a"].asked) < 40
            assert len(w.endpoints["b"].asked) == 200
            outcomes = {each.outcome for each in ended.attempts}
            assert "answered" in outcomes

    run_virtually(main)
