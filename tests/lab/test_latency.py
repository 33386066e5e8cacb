"""The definitions, on scripted streams with virtual stamps, in milliseconds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS
from headway.lab.arrival_table import arrival_table, interval_table
from headway.lab.exchange import Exchange
from headway.lab.latency import (
    Interval,
    e2e_from_dispatch_ns,
    e2e_ns,
    intervals,
    itl_ns,
    lag_ns,
    output_rate,
    tpot_ns,
    ttft_from_dispatch_ns,
    ttft_ns,
)
from headway.lab.rates import peak_rate
from headway.lab.tokens import arrivals, token_counts
from support.random_records import garbled, records
from support.scripted_stream import DONE, chat, play, tokens, usage

END = chat("length")


def ms(duration_ns: float | None) -> float | None:
    return None if duration_ns is None else duration_ns / NS_PER_MS


def test_ttft_is_the_first_text_and_no_role_chunk() -> None:
    exchange = play(
        (100, chat(role="assistant", content="")),
        (150, chat(content=None)),
        (200, chat(content="")),
        (300, chat(content="a")),
        (310, chat(content="b") + END + DONE),
    )
    assert ms(ttft_ns(exchange)) == 300
    assert intervals(exchange).runs == (Interval(each_ns=10 * NS_PER_MS, num_tokens=1),)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_ttft_is_the_first_reasoning(field: str) -> None:
    exchange = play(
        (100, chat(role="assistant", content=None)),
        (200, chat(**{field: ""})),
        (300, chat(**{field: "hm"})),
        (400, chat(content="a") + END + DONE),
    )
    assert ms(ttft_ns(exchange)) == 300
    assert ms(e2e_ns(exchange)) == 400


def test_ttft_is_the_first_argument_of_a_tool_call_and_not_its_name() -> None:
    named = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    exchange = play(
        (50, chat(role="assistant", content=None, tool_calls=[named])),
        (300, chat(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]) + chat("tool_calls") + DONE),
    )
    assert ms(ttft_ns(exchange)) == 300


def test_the_end_is_the_last_text_and_not_usage() -> None:
    exchange = play(*tokens(100, 10, 11), (205, END), (700, usage(11)), (701, DONE))
    assert ms(e2e_ns(exchange)) == 200
    assert ms(tpot_ns(exchange)) == 10
    assert ms(itl_ns(exchange)) == 10
    assert output_rate(exchange) == pytest.approx(11 / 0.2)


def test_four_tokens_a_chunk_are_four_tokens() -> None:
    exchange = play(*tokens(100, 40, 25), (1065, END + usage(100) + DONE))
    assert intervals(exchange).source == "usage"
    assert intervals(exchange).runs == (Interval(each_ns=10 * NS_PER_MS, num_tokens=4),) * 24
    assert ms(itl_ns(exchange)) == 10
    assert ms(tpot_ns(exchange)) == pytest.approx(960 / 99)
    assert output_rate(exchange) == pytest.approx(100 / 1.06)
    peak = peak_rate([exchange])
    assert peak is not None
    assert 96 <= peak <= 100


def test_without_counts_intervals_are_between_chunks_and_say_so() -> None:
    exchange = play(*tokens(100, 40, 25), (1065, END + DONE))
    assert intervals(exchange).source == "chunks"
    assert ms(itl_ns(exchange)) == 40


def test_one_token_has_no_interval() -> None:
    exchange = play((100, chat(content="a") + END), (600, usage(1) + DONE))
    assert (ms(ttft_ns(exchange)), ms(e2e_ns(exchange))) == (100, 100)
    assert tpot_ns(exchange) is None
    assert itl_ns(exchange) is None
    assert intervals(exchange).runs == ()
    assert output_rate(exchange) == pytest.approx(10)
    assert peak_rate([exchange]) == 1


def test_one_token_and_the_end_token_have_no_interval() -> None:
    exchange = play((100, chat(content="a")), (110, chat("stop") + usage(2) + DONE))
    assert tpot_ns(exchange) is None
    assert itl_ns(exchange) is None


def test_an_answer_that_comes_all_at_once_has_no_interval() -> None:
    exchange = play((100, chat(content="a") * 50 + END + usage(50) + DONE))
    assert tpot_ns(exchange) is None
    assert itl_ns(exchange) is None
    assert token_counts(exchange).total == 50


def test_chunks_that_share_a_read_share_its_interval() -> None:
    exchange = play((100, chat(content="a")), (130, chat(content="a") * 3), (140, chat(content="a") + DONE))
    assert intervals(exchange).runs == (
        Interval(each_ns=10 * NS_PER_MS, num_tokens=3),
        Interval(each_ns=10 * NS_PER_MS, num_tokens=1),
    )


def test_time_without_a_whole_token_goes_to_a_neighbour() -> None:
    pieces = play(*tokens(100, 10, 6, text="x"), (160, END + usage(2) + DONE))
    assert [run.num_tokens for run in intervals(pieces).runs] == [1]
    assert ms(itl_ns(pieces)) == 50
    held = play(
        *(
            (at, chat(content=text))
            for at, text in [(100, "a"), (110, "b"), (120, ""), (130, "-"), (140, "-")]
        ),
        (150, DONE),
        count_tokens=lambda text: 0 if text == "-" else 1,
    )
    assert intervals(held).source == "tokenizer"
    assert intervals(held).runs == (Interval(each_ns=40 * NS_PER_MS, num_tokens=1),)


def test_lag_is_part_of_latency_from_the_intended_start() -> None:
    exchange = play(
        (150, chat(content="a")), (170, chat(content="b") + DONE), intended_ms=20, dispatched_ms=50
    )
    assert ms(lag_ns(exchange)) == 30
    assert (ms(ttft_ns(exchange)), ms(ttft_from_dispatch_ns(exchange))) == (130, 100)
    assert (ms(e2e_ns(exchange)), ms(e2e_from_dispatch_ns(exchange))) == (150, 120)


def test_a_request_sent_early_counts_from_when_it_was_sent() -> None:
    exchange = play((150, chat(content="a") + DONE), intended_ms=60, dispatched_ms=50)
    assert lag_ns(exchange) == 0
    assert ms(ttft_ns(exchange)) == 100


def test_opening_the_connection_is_kept_apart() -> None:
    exchange = play((150, chat(content="a")), (170, chat(content="b") + DONE), connect_ms=30)
    assert ms(ttft_ns(exchange)) == 120
    assert ms(e2e_ns(exchange)) == 140
    assert ms(exchange.stamps.setup_ns) == 30


def test_a_failure_has_the_figures_it_reached() -> None:
    exchange = play(*tokens(100, 10, 3), ending="closed")
    assert not exchange.ok
    assert ms(ttft_ns(exchange)) == 100
    nothing = play(status=429)
    assert [ttft_ns(nothing), e2e_ns(nothing), tpot_ns(nothing), itl_ns(nothing), output_rate(nothing)] == [
        None
    ] * 5


@given(records() | garbled())
def test_nothing_is_negative_ever(exchange: Exchange | None) -> None:
    if exchange is None:
        return
    figures = [ttft_ns, ttft_from_dispatch_ns, e2e_ns, e2e_from_dispatch_ns, tpot_ns, itl_ns, output_rate]
    measured = [value for figure in figures if (value := figure(exchange)) is not None]
    measured += [lag_ns(exchange), exchange.stamps.setup_ns]
    measured += [] if (peak := peak_rate([exchange])) is None else [peak]
    assert all(0 <= value < math.inf for value in measured)
    assert all(run.each_ns > 0 and run.num_tokens > 0 for run in intervals(exchange).runs)


@given(st.lists(records(), max_size=4))
def test_tables_of_many_answers_say_what_is_said_of_each(exchanges: list[Exchange]) -> None:
    table = arrival_table(exchanges)
    rows = zip(table.request, table.at_ns, table.num_tokens, strict=True)
    assert list(rows) == [
        (number, arrival.at_ns, arrival.num_tokens)
        for number, exchange in enumerate(exchanges)
        for arrival in arrivals(exchange)[1]
    ]
    each = interval_table(table)
    assert list(zip(each.request, each.num_tokens, strict=True)) == [
        (number, run.num_tokens)
        for number, exchange in enumerate(exchanges)
        for run in intervals(exchange).runs
    ]
    runs_ns = [run.each_ns for exchange in exchanges for run in intervals(exchange).runs]
    assert each.each_ns.tolist() == pytest.approx(runs_ns)


@given(records())
def test_figures_agree_with_each_other(exchange: Exchange) -> None:
    ttft, e2e = ttft_ns(exchange), e2e_ns(exchange)
    if ttft is None or e2e is None:
        assert not exchange.text_events
        return
    assert ttft <= e2e
    assert ttft - (ttft_from_dispatch_ns(exchange) or 0) == lag_ns(exchange)
    runs = intervals(exchange).runs
    if runs:
        assert sum(run.each_ns * run.num_tokens for run in runs) == pytest.approx(e2e - ttft)
    assert itl_ns(exchange) == (None if not runs else pytest.approx(intervals(exchange).mean_ns))
    _, came = arrivals(exchange)
    if runs and came[0].num_tokens == 1:
        assert itl_ns(exchange) == pytest.approx(tpot_ns(exchange))
