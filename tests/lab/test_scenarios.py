"""The scenarios that the lab answers for, each from the bytes of a server to the figures of a report.

Most run in virtual time (`support.scripted_server`), where figures are exact. The tests of each part say more of each.
"""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.lab.client import Client, Patience
from headway.lab.code_corpus import SourceFile
from headway.lab.drive import Driver
from headway.lab.exchange import Exchange
from headway.lab.latency import ttft_from_dispatch_ns, ttft_ns
from headway.lab.measurement import measure
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from headway.lab.summary import Summary, as_json, summarise
from support.random_records import garbled, records
from support.scripted_server import (
    Answer,
    Reply,
    answer,
    body,
    listening,
    offer_virtually,
    refusal,
    talks,
)
from support.scripted_stream import DONE, chat, event, tokens, usage

MS = 1_000_000
DATA = Path(__file__).parent / "data"
CODE = (SourceFile("app.py", tuple(f"value_{line} = {line}" for line in range(20_000))),)


def found(reply: Reply, num_requests: int = 10) -> Summary:
    """The figures of requests one after another that all get the same."""
    return summarise(offer_virtually(lambda *_: reply, num_requests=num_requests))


def ttfts_ms(exchanges: list[Exchange]) -> list[float]:
    return [-1 if (told := ttft_ns(each)) is None else told / MS for each in exchanges]


class TestScenario1:
    """A role 200 ms before the first token; "", null and reasoning deltas: TTFT is the first text or reasoning."""

    EARLY = ((100, chat(role="assistant", content="")), (150, chat(content=None)), (200, chat(content="")))

    def test_a_role_and_empty_deltas_are_no_token(self) -> None:
        run = found(Reply(sent=[*self.EARLY, *tokens(300, 10, 5), (345, chat("stop") + DONE)]))
        assert run.ttft.successes.percentiles["p50"] == pytest.approx(300)
        assert run.itl.n == 40
        assert run.itl.percentiles["p95"] == pytest.approx(10)
        assert run.output_tokens == 50

    @pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
    def test_reasoning_is_a_token(self, name: str) -> None:
        thought = [(250, chat(**{name: ""})), (300, chat(**{name: "Hm"})), (310, chat(**{name: "."}))]
        run = found(Reply(sent=[*self.EARLY, *thought, (320, chat(content="Yes") + chat("stop") + DONE)]))
        assert run.ttft.successes.percentiles["p50"] == pytest.approx(300)
        assert run.e2e.successes.percentiles["p50"] == pytest.approx(320)
        assert run.output_tokens == 30


def test_scenario_2_usage_long_after_the_last_token_does_not_count() -> None:
    """Scenario 2: a usage chunk 500 ms after the last token."""
    run = found(Reply(sent=[*tokens(100, 10, 11), (205, chat("stop")), (700, usage(11)), (701, DONE)]))
    assert run.e2e.successes.percentiles["p50"] == pytest.approx(200)
    assert run.tpot.successes.percentiles["p50"] == pytest.approx(10)
    assert run.itl.mean == pytest.approx(10)
    assert run.token_source == "usage"


def test_scenario_3_four_tokens_a_chunk_are_four_tokens() -> None:
    """Scenario 3: four tokens per chunk; TPOT, ITL and the peak rate are those of the tokens."""
    run = found(Reply(sent=[*tokens(100, 40, 25), (1065, chat("length") + usage(100) + DONE)]))
    assert run.itl.mean == run.itl.percentiles["p95"] == pytest.approx(10)
    assert run.itl.n == 10 * 96
    assert run.tpot.successes.percentiles["p50"] == pytest.approx(960 / 99)
    assert run.output_tok_s == pytest.approx(1000 / run.duration_s)
    assert run.peak_tok_s is not None
    assert 90 <= run.peak_tok_s <= 100  # a token each 10 ms


class TestScenario4:
    """A server that stalls 2 s once: every request due meanwhile shows it."""

    @staticmethod
    def stalls(_: int, now_ms: float) -> Reply:
        return answer(ttft_ms=10 + (3000 - now_ms if 1000 <= now_ms < 3000 else 0))

    def test_every_request_due_meanwhile_shows_it(self) -> None:
        exchanges = offer_virtually(self.stalls, range(0, 5000, 50))
        start_ns = exchanges[0].stamps.intended_ns
        due_ms = [(each.stamps.intended_ns - start_ns) / MS for each in exchanges]
        assert due_ms == list(range(0, 5000, 50))
        expected = [
            10 + (2980 - due if 980 <= due < 2980 else 0) for due in due_ms
        ]  # the server began 20 ms before
        assert ttfts_ms(exchanges) == pytest.approx(expected, abs=0.001)
        assert sum(told > 11 for told in expected) == 40
        run = summarise(exchanges, slo=parse_slo("ttft=480ms"))
        assert run.lag.percentiles["p95"] == pytest.approx(0)
        assert run.ttft.successes.percentiles["p90"] == pytest.approx(1490)
        assert run.goodput is not None
        assert run.goodput.fraction == 69 / 100  # those due in the stall's last 470 ms still met it

    def test_a_client_that_stalls_itself_shows_it_too(self) -> None:
        """What is sent late counts from when it was due, and its lag says whose fault that was."""
        exchanges = offer_virtually(self.stalls, range(0, 5000, 50))
        late = [
            replace(each, stamps=replace(each.stamps, intended_ns=each.stamps.intended_ns - 2000 * MS))
            for each in exchanges
        ]
        assert ttfts_ms(late) == pytest.approx([told + 2000 for told in ttfts_ms(exchanges)])
        assert [ttft_from_dispatch_ns(each) for each in late] == [ttft_ns(each) for each in exchanges]
        assert summarise(late).lag.percentiles["p50"] == 2000

    def test_a_closed_load_sends_less_and_sees_it_once_for_each_user(self) -> None:
        exchanges = offer_virtually(self.stalls, num_users=4, num_requests=400)
        assert sum(told > 11 for told in ttfts_ms(exchanges)) == 4


class TestScenario5:
    """10 % errors and 10 % refusals never make percentiles faster; goodput is of what was offered."""

    @staticmethod
    def good(number: int, _: float) -> Reply:
        return answer(ttft_ms=50 + number)

    def run(self, script: Answer) -> Summary:
        return summarise(offer_virtually(script, range(0, 6000, 30)), slo=parse_slo("ttft=100ms"))

    @pytest.mark.parametrize("fails", ["anywhere", "slowest", "fastest"])
    def test_failures_never_make_percentiles_faster(self, fails: str) -> None:
        errors, refusals = {
            "anywhere": (range(3, 200, 10), range(7, 200, 10)),
            "slowest": (range(180, 200), range(160, 180)),
            "fastest": (range(20), range(20, 40)),
        }[fails]

        def bad(number: int, now_ms: float) -> Reply:
            if number in errors:
                return Reply(sent=[(1, event({"error": {"message": "out of memory"}}))])
            if number in refusals:
                return refusal("429 Too Many Requests")
            return self.good(number, now_ms)

        whole, broken = self.run(self.good), self.run(bad)
        assert broken.failures == {"error_event": 20, "refused_429": 20}
        assert (broken.num_offered, broken.num_ok) == (200, 160)
        for figure, all_well in (
            (broken.ttft, whole.ttft),
            (broken.e2e, whole.e2e),
            (broken.tpot, whole.tpot),
        ):
            for name, value in all_well.successes.percentiles.items():
                told = figure.all_requests.percentiles[name]
                assert (told is None) == (value is None)
                assert told is None or value is None or told >= value or told == pytest.approx(value)
            assert figure.all_requests.percentiles["p90"] == math.inf
        left = [number for number in range(200) if number not in {*errors, *refusals}]
        ordered = sorted(50 + number for number in left)
        assert broken.ttft.successes.percentiles["p50"] == pytest.approx(ordered[79])
        assert broken.goodput is not None
        assert broken.goodput.fraction == sum(50 + number <= 100 for number in left) / 200

    def test_its_json_says_so(self) -> None:
        def bad(number: int, now_ms: float) -> Reply:
            return refusal("503 Service Unavailable") if number % 5 == 0 else self.good(number, now_ms)

        told = json.loads(json.dumps(as_json(self.run(bad)), allow_nan=False))
        assert told["ttft_ms"]["with_failures"]["p90"] == "inf"
        assert told["ttft_ms"]["with_failures"]["p50"] > told["ttft_ms"]["p50"]
        assert told["errors"] == {"refused_503": 40}
        assert told["goodput"] == 40 / 200


def test_scenario_6_one_token_has_no_interval() -> None:
    """Scenario 6: one-token answers have a TTFT and an end, no interval, and meet limits on intervals."""
    one = Reply(sent=[(100, chat(content="Yes") + chat("stop") + usage(1) + DONE)])
    exchanges = offer_virtually(lambda *_: one, num_requests=10)
    run = summarise(exchanges, slo=parse_slo("ttft=480ms,itl=50ms"))
    assert (run.num_ok, run.output_tokens) == (10, 10)
    assert run.peak_tok_s == pytest.approx(10)
    assert run.ttft.successes.percentiles["p50"] == pytest.approx(100)
    assert run.e2e.successes.percentiles["p50"] == pytest.approx(100)
    assert (run.itl.n, run.tpot.successes.n, run.tpot.all_requests.n) == (0, 0, 0)
    assert run.goodput is not None
    assert run.goodput.fraction == 1


class TestScenario7:
    """Closed mid-stream, garbage, silence, 429 with Retry-After: each counted by its kind."""

    SCRIPTS = (
        ("closed", Reply(sent=[*tokens(0, 0, 2)], ending="closed")),
        ("closed", Reply(sent=[*tokens(0, 0, 2)])),  # the HTTP message is whole, the stream is not
        ("closed", Reply(sent=[(0, b'data: {"choices": [{"del')], ending="closed")),
        ("connection", Reply(head=b"", ending="closed")),
        ("garbage", Reply(head=b"\x16\x03\x01 no HTTP\r\n\r\n")),
        ("garbage", Reply(sent=[(0, b"data: {nonsense}\n\n")])),
        ("garbage", Reply(sent=[(0, b"<html>It works!</html>")])),
        ("silence", Reply(sent=[*tokens(0, 0, 2)], ending="silent")),
        ("silence", Reply(head=b"", ending="silent")),
        ("refused_429", refusal("429 Too Many Requests", "Retry-After: 7\r\n")),
        ("refused_503", refusal("503 Service Unavailable", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n")),
        ("status_500", refusal("500 Internal Server Error")),
        ("error_event", Reply(sent=[*tokens(0, 0, 2), (0, event({"error": "out of memory"}) + DONE)])),
        ("empty", Reply(sent=[(0, chat(role="assistant", content="") + chat("stop") + DONE)])),
    )

    @pytest.mark.anyio
    async def test_each_is_counted_by_its_kind(self) -> None:
        scripts = [
            (None, answer(0, 0)),
            *itertools.chain(*((each, (None, answer(0, 0))) for each in self.SCRIPTS)),
        ]
        # A kept connection that is closed without a byte may have been closed before: it is asked once more on a new one.
        replies = [reply for label, reply in scripts for _ in range(2 if label == "connection" else 1)]
        async with listening(lambda number, _: replies[number]) as (_, endpoint):
            with Client(endpoint, Patience(silence_s=0.05)) as client:
                driver = Driver(client, body)
                await driver.closed(1, talks(), num_conversations=len(scripts))
        exchanges = driver.offered.exchanges
        labels = [each.answer.failure and each.answer.failure.label for each in exchanges]
        assert labels == [label for label, _ in scripts]
        waits = {
            each.answer.failure.label: each.answer.failure.retry_after_s
            for each in exchanges
            if each.answer.failure
        }
        assert (waits["refused_429"], waits["refused_503"]) == (7, None)
        run = summarise(exchanges)
        assert run.num_ok == len(self.SCRIPTS) + 1
        assert run.failures == {
            label: [each for each, _ in self.SCRIPTS].count(label)
            for label in sorted({each for each, _ in self.SCRIPTS})
        }

    @pytest.mark.anyio
    async def test_nobody_there_is_a_failure_of_the_connection(self) -> None:
        async with listening(lambda *_: answer()) as (_, endpoint):
            pass
        with Client(endpoint) as client:
            driver = Driver(client, body)
            await driver.closed(1, talks(), num_conversations=3)
        assert summarise(driver.offered.exchanges).failures == {"connection": 3}

    @pytest.mark.parametrize(("patience_s", "failure"), [(20, {"silence": 1}), (60, {})])
    def test_silence_for_30_s_is_as_long_as_the_client_waits(
        self, patience_s: float, failure: dict[str, int]
    ) -> None:
        silent = Reply(sent=[*tokens(5, 5, 2), (30_010, chat(content="!") + DONE)])
        exchanges = offer_virtually(lambda *_: silent, [0], patience=Patience(silence_s=patience_s))
        run = summarise(exchanges)
        assert run.failures == failure
        assert run.duration_s == pytest.approx(20.01 if failure else 30.01)
        assert ttfts_ms(exchanges) == pytest.approx([5])


FORMS = (
    "light",
    "medium",
    "multi-turn:2",
    "shared-prefix:2:3",
    "context:256,1k",
    "mixed:light=0.5,medium:repeat=0.3,multi-turn:2=0.2",
    *(
        f"trace:{DATA / name}"
        for name in ("mooncake.jsonl", "azure_2023.csv", "burstgpt_1.csv", "access_timed.log")
    ),
)


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_scenario_8_one_seed_sends_identical_bytes_at_identical_times(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 8: two runs with one seed send the same bytes, a run with another seed sends other chats at other times."""
    monkeypatch.setattr("headway.lab.traffic.standard_library", lambda: CODE)
    monkeypatch.setattr("headway.lab.distribution.RESAMPLES", 20)
    async with listening(lambda *_: answer(0, 0)) as (server, endpoint):

        async def run(seed: int) -> tuple[list[bytes], set[str], list[int]]:
            server.received.clear()
            options = RunOptions(
                endpoint=endpoint,
                model="m",
                workload=form,
                arrival="poisson:500",
                num_requests=6,
                seed=seed,
                num_processes=1,
            )
            result = await measure(options)
            assert result.start_ns is not None
            assert len(server.received) >= result.summary.num_ok >= 4
            starts = [
                each.stamps.intended_ns - result.start_ns for each in result.exchanges if each.turn == 1
            ]
            return sorted(server.received), {json.dumps(chat) for chat in server.messages}, sorted(starts)

        bytes_sent, chats, starts = await run(seed=1)
        again = await run(seed=1)
        assert (again[0], again[2]) == (bytes_sent, starts)
        _, other_chats, other_starts = await run(seed=2)
    assert chats.isdisjoint(other_chats)  # not the seed alone, which is sent, too, makes the bytes differ
    assert other_starts != starts


def numbers(told: object) -> Iterator[float]:
    """All numbers of a JSON value."""
    if isinstance(told, dict):
        for each in told.values():
            yield from numbers(each)
    elif isinstance(told, list):
        for each in told:
            yield from numbers(each)
    elif isinstance(told, int | float) and not isinstance(told, bool):
        yield told


@settings(max_examples=60)
@given(st.lists(st.tuples(records(1000) | garbled(1000), st.integers(0, 3)), max_size=12), st.booleans())
def test_scenario_9_nothing_is_negative_ever(
    made: list[tuple[Exchange | None, int]], clustered: bool
) -> None:
    """Scenario 9: whatever the stamps, no figure of the JSON is negative or no number."""
    run = [
        replace(exchange, conversation=cluster if clustered else number)
        for number, (exchange, cluster) in enumerate(made)
        if exchange is not None
    ]
    with mock.patch("headway.lab.distribution.RESAMPLES", 20):
        summary = summarise(run, slo=parse_slo("ttft=480ms,itl=50ms"), num_unsent_turns=3)
    told = json.loads(json.dumps(as_json(summary), allow_nan=False))
    assert told["offered"] == len(run)
    assert [number for number in numbers(told) if number < 0] == []
