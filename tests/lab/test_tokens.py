import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.tokens import Arrival, TokenCounts, apportion, arrivals, token_counts
from support.scripted_stream import DONE, chat, event, play, tokens, usage


def test_usage_comes_before_a_tokenizer_and_that_before_chunks() -> None:
    chunks = tokens(10, 5, 4, text="four")
    end = (30.0, chat("length") + DONE)
    counted = (29.0, usage(16))
    assert token_counts(play(*chunks, counted, end, count_tokens=len)).source == "usage"
    assert token_counts(play(*chunks, end, count_tokens=len)) == TokenCounts(
        source="tokenizer", counts=(4, 4, 4, 4)
    )
    assert token_counts(play(*chunks, end)) == TokenCounts(source="chunks", counts=(1, 1, 1, 1))


def test_usage_is_spread_over_even_chunks_evenly() -> None:
    counts = token_counts(play(*tokens(10, 5, 25), (200, chat("length") + usage(100) + DONE)))
    assert counts == TokenCounts(source="usage", counts=(4,) * 25)


@pytest.mark.parametrize(("reason", "total"), [("stop", 3), ("tool_calls", 3), ("length", 4)])
def test_the_token_that_ends_an_answer_brings_no_text(reason: str, total: int) -> None:
    counts = token_counts(play(*tokens(10, 5, 3), (30, chat(reason) + usage(4) + DONE)))
    assert counts.total == total


def test_usage_of_nothing_beside_text_is_not_believed() -> None:
    counts = token_counts(play(*tokens(10, 5, 3), (30, chat("length") + usage(0) + DONE)))
    assert counts == TokenCounts(source="chunks", counts=(1, 1, 1))


def test_counts_of_every_chunk_are_taken_as_they_are() -> None:
    chunks = [
        (10.0 + total, event({"choices": [{"text": "abc"}], "usage": {"completion_tokens": total}}))
        for total in (1, 6, 8)
    ]
    assert token_counts(play(*chunks, (30, DONE))).counts == (1, 5, 2)


def test_a_tokenizer_weighs_what_usage_counts() -> None:
    chunks = [
        (10, chat(content="aaaaaa")),
        (20, chat(content="b b b ")),
        (30, chat("length") + usage(6) + DONE),
    ]
    exchange = play(*chunks, count_tokens=lambda text: 2 if "a" in text else 6)
    assert token_counts(exchange) == TokenCounts(source="usage", counts=(1, 5))


def test_chunks_of_one_read_are_one_arrival() -> None:
    source, came = arrivals(
        play((10, chat(content="a")), (20, chat(content="a") * 3), (30, chat(content="a") + DONE))
    )
    assert source == "chunks"
    assert [(arrival.at_ns // 1_000_000, arrival.num_tokens) for arrival in came] == [
        (10, 1),
        (20, 3),
        (30, 1),
    ]
    assert came[0] == Arrival(at_ns=10_000_000, num_tokens=1)


@pytest.mark.parametrize(
    ("total", "weights", "counts"),
    [
        (9, [32, 4], [8, 1]),
        (3, [5, 500, 5], [1, 1, 1]),
        (8, [4, 4, 4, 4], [2, 2, 2, 2]),
        (1, [4, 4, 4], [1, 0, 0]),
        (2, [4, 1, 9], [1, 0, 1]),
        (5, [0, 0], [3, 2]),
        (7, [3], [7]),
    ],
)
def test_tokens_are_spread_by_length(total: int, weights: list[int], counts: list[int]) -> None:
    assert sorted(apportion(total, weights)) == sorted(counts)
    if len(set(weights)) > 1:
        assert apportion(total, weights) == counts


@given(st.integers(1, 2**31), st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_no_token_is_lost_and_none_is_made_up(total: int, weights: list[int]) -> None:
    counts = apportion(total, weights)
    assert sum(counts) == total
    assert len(counts) == len(weights)
    assert counts[0] >= 1
    assert min(counts) >= (1 if total >= len(weights) else 0)
