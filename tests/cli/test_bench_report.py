"""What `headway bench` prints of a run: the warning first, then what there is to say, on one screen."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from headway.cli.bench_report import as_json, as_text
from headway.lab.deltas import TokenUsage
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Answer, Exchange, Failure, Stamps, StreamEvent
from headway.lab.measurement import RunResult
from headway.lab.run_options import RunOptions
from headway.lab.slo import Slo
from headway.lab.summary import summarise

MS = 1_000_000
HOW_LONG = 40
"""Lines of a terminal."""


def requests(
    num: int = 100, num_turns: int = 1, label: str = "light", users: int = 1, cached: bool = True
) -> Iterator[Exchange]:
    rng = np.random.default_rng(len(label) + num_turns)
    for number in range(num):
        start = (number // users) * 400 * MS
        turn = number % num_turns + 1
        at = start + int(20 * turn * users * MS * rng.lognormal(0, 0.1))
        came = at + np.cumsum([0, *rng.lognormal(1, 0.2, 19) * users * MS]).astype(int)
        yield Exchange(
            stamps=Stamps(
                intended_ns=start,
                dispatched_ns=start,
                written_ns=start,
                first_byte_ns=start,
                ended_ns=int(came[-1]),
            ),
            answer=Answer(
                events=tuple(
                    StreamEvent(at_ns=at_ns, kind="content", num_chars=4) for at_ns in came.tolist()
                ),
                usage=TokenUsage(
                    prompt_tokens=100 * turn,
                    completion_tokens=20,
                    cached_tokens=80 if cached and turn > 1 else 0,
                ),
            ),
            conversation=number // num_turns,
            turn=turn,
            label=label,
        )


def result(run: list[Exchange], lag_p99_ns: float = 0.0, slo: Slo | None = None) -> RunResult:
    options = RunOptions(endpoint=Endpoint(host="host", port=1, path="/v1"), workload="light", slo=slo)
    return RunResult(
        options=options,
        model="m",
        arrival="closed:1",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        start_ns=0,
        summary=summarise(run, slo=slo),
        exchanges=tuple(run),
        lag_p99_ns=lag_p99_ns,
        interrupted=False,
    )


def test_a_plain_run_is_a_headline_a_table_and_what_latency_follows() -> None:
    lines = as_text(result(list(requests()), slo=Slo(ttft_ns=1_000 * MS))).splitlines()
    assert lines[0] == "First token after 19.9 ms, then one every 2.75 ms (medians): m at host:1"
    assert lines[1] == "light, closed:1, 100 requests in 39.7 s, 100 answered"
    assert [line.split()[0] for line in lines[4:9]] == ["TTFT", "ITL", "TPOT", "E2E", "client's"]
    assert len(lines) <= 20
    text = "\n".join(lines)
    assert "Decode: 2.7" in text
    assert "lognormal (σ 0.2), which fits" in text
    for only_others_have in ("turn", "part", "in flight", "Cache", "warm-up"):
        assert only_others_have not in text


def test_a_warning_is_the_first_line() -> None:
    assert as_text(result(list(requests()), lag_p99_ns=20 * MS)).startswith("DO NOT BELIEVE THESE FIGURES")


def test_turns_parts_and_concurrency_are_told_where_there_are_several() -> None:
    run = list(requests(100, num_turns=5, label="multi-turn"))
    later = [
        replace(
            each, conversation=1_000 + number, stamps=moved(each.stamps), answer=moved_answer(each.answer)
        )
        for number, each in enumerate(requests(80, label="medium", users=4))
    ]
    text = as_text(result([*run, *later]))
    assert "\nTTFT of the fifth turn: " in text
    assert "; of the first " in text
    assert "\nmedium " in text
    assert "\n3 to 4 " in text
    assert "Cache: TTFT p50 " in text
    assert len(text.splitlines()) <= HOW_LONG


def moved(stamps: Stamps) -> Stamps:
    by = 100_000 * MS
    return Stamps(
        intended_ns=stamps.intended_ns + by,
        dispatched_ns=stamps.dispatched_ns + by,
        written_ns=stamps.dispatched_ns + by,
        first_byte_ns=stamps.dispatched_ns + by,
        ended_ns=stamps.ended_ns + by,
    )


def moved_answer(answer: Answer) -> Answer:
    events = tuple(replace(event, at_ns=event.at_ns + 100_000 * MS) for event in answer.events)
    return replace(answer, events=events)


def test_a_warm_up_is_told_as_it_was_left_out() -> None:
    run = list(requests())
    slow = [
        replace(
            each, stamps=replace(each.stamps, intended_ns=0, dispatched_ns=0, written_ns=0, first_byte_ns=0)
        )
        for each in run[:10]
    ]
    found = result([*slow, *run[10:]])
    assert "the first 10 requests were left out of latencies as warm-up" in as_text(found)
    assert as_json(found)["warm_up"] == {"excluded": 10, "steady": True}


@pytest.mark.parametrize("num", [0, 1, 7])
def test_nothing_but_failures_is_told_as_such(num: int) -> None:
    stamps = Stamps(intended_ns=0, dispatched_ns=0, ended_ns=5)
    failed = Exchange(stamps=stamps, answer=Answer(failure=Failure(kind="connection", message="")))
    text = as_text(result([failed] * num, slo=Slo(ttft_ns=1)))
    assert text.startswith("No request was answered: m at host:1")
    assert (f"{num} failed: connection" in text) == (num > 0)
