"""What a trace says of itself: how it was read, when its requests came, and how much of their prompts they share."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.lab.trace import TraceFormat, TraceRow, build_trace
from headway.lab.trace_facts import facts_json, trace_facts
from headway.lab.trace_summary import summarise_trace
from headway.lab.traces import parse_trace, read_trace

DATA = Path(__file__).parent / "data"


def test_facts_name_what_could_not_be_read() -> None:
    facts = trace_facts(read_trace(DATA / "mooncake.jsonl"))
    told = facts_json(facts)
    assert json.loads(json.dumps(told)) == {
        "format": "mooncake",
        "rows": 8,
        "bad": 2,
        "bad_rows": [
            {"line": 5, "reason": facts.bad_rows[0].reason},
            {"line": 8, "reason": "1200 tokens are 3 blocks of 512, and it names 2"},
        ],
        "out_of_order": 0,
        "tokens_inferred": False,
        "duration_s": 9.05,
        "distinct_times": 4,
    }
    assert (facts.num_sharing, facts.coarse) == (7, True)


@pytest.mark.parametrize(
    ("name", "coarse", "inferred"), [("azure_2023", False, False), ("access_timed", False, True)]
)
def test_times_to_the_millisecond_are_no_coarse_grid(name: str, coarse: bool, inferred: bool) -> None:
    [path] = DATA.glob(f"{name}.*")
    facts = trace_facts(read_trace(path))
    assert (facts.coarse, facts.tokens_inferred) == (coarse, inferred)


def test_arrivals_at_even_gaps_do_not_vary() -> None:
    lines = ["Timestamp,Request tokens,Response tokens", *(f"{second},100,10" for second in range(0, 200, 2))]
    found = summarise_trace(parse_trace(lines))
    assert (found.mean_rate, found.gap_cv, found.peak_second) == (0.5, 0, 1)
    assert (found.started_at, found.by_hour, found.shared_prefix) == (None, None, None)
    assert (found.input_tokens.percentiles["p99"], found.output_tokens.n) == (100, 100)


def test_failures_have_no_answers_length() -> None:
    found = summarise_trace(read_trace(DATA / "burstgpt_1.csv"))
    assert (found.num_failed, found.input_tokens.n, found.output_tokens.n) == (1, 4, 3)
    assert summarise_trace(read_trace(DATA / "burstgpt_2.csv")).num_sessions == 1


def test_dates_tell_hours() -> None:
    found = summarise_trace(read_trace(DATA / "azure_2023.csv"))
    assert found.started_at is not None
    assert found.started_at.replace(microsecond=0) == datetime(2023, 11, 16, 18, 15, 46, tzinfo=UTC)
    assert found.by_hour == (*[0] * 18, 5, *[0] * 5)
    logged = summarise_trace(read_trace(DATA / "access_timed.log")).by_hour
    assert logged == (*[0] * 13, 1, 4, *[0] * 9)


def test_one_request_has_no_rate() -> None:
    found = summarise_trace(build_trace(TraceFormat.BURSTGPT, [TraceRow(1, 7, 1, 1)]))
    assert (found.mean_rate, found.gap_cv, found.peak_second, found.peak_offset_ns) == (None, None, 1, 0)


def test_a_block_is_shared_once_an_earlier_request_had_it() -> None:
    blocks = [(700, (1, 2)), (700, (1, 3)), (1100, (1, 3, 4)), (512, (9,))]
    rows = [
        TraceRow(line, line, num_tokens, 1, hash_ids=ids) for line, (num_tokens, ids) in enumerate(blocks, 1)
    ]
    found = summarise_trace(build_trace(TraceFormat.MOONCAKE, rows))
    assert found.shared_prefix == (0 + 512 + 1024 + 0) / (700 + 700 + 1100 + 512)
    again = summarise_trace(
        build_trace(TraceFormat.MOONCAKE, [*rows, TraceRow(5, 9, 700, 1, hash_ids=(1, 3))])
    )
    assert again.shared_prefix == (512 + 1024 + 700) / (700 + 700 + 1100 + 512 + 700)


@given(st.lists(st.integers(0, 5 * NS_PER_S), min_size=1, max_size=50))
def test_the_peak_is_the_most_within_any_second(times_ns: list[int]) -> None:
    found = summarise_trace(
        build_trace(TraceFormat.AZURE, [TraceRow(i, at, 1, 1) for i, at in enumerate(times_ns)])
    )
    first = min(times_ns)
    counts = {at - first: sum(at <= other < at + NS_PER_S for other in times_ns) for at in times_ns}
    assert found.peak_second == max(counts.values()) == counts[found.peak_offset_ns]
