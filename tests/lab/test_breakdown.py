"""A run taken apart: every turn and part told, nothing lost, and nothing where there is nothing to take apart."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.lab.breakdown import (
    by_cache,
    by_cache_json,
    by_label,
    by_label_json,
    by_turn,
    by_turn_json,
    cached_share,
    part,
)
from headway.lab.exchange import Exchange
from support.scripted_stream import DONE, play, tokens, usage

FORM = {"p50", "p90", "p95", "p99", "p99.9", "mean", "std", "n", "ci95"}


def answered(
    ttft_ms: float,
    *,
    turn: int = 1,
    label: str = "light",
    conversation: int = 0,
    prompt: int = 100,
    cached: int | None = None,
) -> Exchange:
    end_ms = ttft_ms + 20
    found = play(*tokens(ttft_ms, 10, 3), (end_ms, usage(3, prompt, cached)), (end_ms, DONE))
    return replace(found, turn=turn, label=label, conversation=conversation)


def refused(turn: int = 1, label: str = "light") -> Exchange:
    return replace(play(status=429), turn=turn, label=label)


def test_every_turn_is_told_and_the_fifth_is_the_fifth() -> None:
    run = [
        answered(100 * turn + conversation, turn=turn, conversation=conversation)
        for conversation in range(9)
        for turn in range(5, 0, -1)
    ]
    found = by_turn_json(by_turn(run))
    assert [each["turn"] for each in found] == [1, 2, 3, 4, 5]
    for each in found:
        assert each["n"] == each["offered"] == 9
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            figure = each[name]
            assert isinstance(figure, dict)
            assert figure.keys() >= FORM
    fifth = found[4]["ttft_ms"]
    assert isinstance(fifth, dict)
    assert (fifth["p50"], fifth["ci95"]["p50"]) == (504, [501, 507])


def test_a_turn_that_never_succeeded_is_told_too() -> None:
    found = by_turn_json(by_turn([answered(5), refused(turn=2)]))[1]
    assert (found["offered"], found["n"]) == (1, 0)
    ttft = found["ttft_ms"]
    assert isinstance(ttft, dict)
    assert (ttft["p50"], ttft["with_failures"]["p50"]) == (None, "inf")


def test_lengths_of_context_stand_in_their_order() -> None:
    labels = ["context:16384", "multi-turn", "context:2048", "light"]
    found = by_label_json(by_label([answered(5, label=label) for label in labels]))
    assert [each["label"] for each in found] == ["light", "multi-turn", "context:2048", "context:16384"]
    assert [each["context_tokens"] for each in found] == [None, None, 2048, 16384]


def test_one_turn_and_one_part_are_nothing_to_take_apart() -> None:
    run = [answered(5), answered(6)]
    assert (by_turn(run), by_label(run), by_cache(run)) == ({}, {}, None)
    assert (by_turn([]), by_label([]), by_cache([]), by_cache_json(None)) == ({}, {}, None, None)


def test_cold_and_cached_are_told_apart_where_the_server_says() -> None:
    cold = [answered(100 + number, cached=0) for number in range(3)]
    cached = [answered(10 + number, cached=75) for number in range(5)]
    found = by_cache([*cold, *cached, answered(1e6), refused()])
    assert found is not None
    assert (found.cold.n, found.cold.percentiles["p50"]) == (3, 101)
    assert (found.cached.n, found.cached.percentiles["p50"]) == (5, 12)
    assert found.cached_share == pytest.approx(5 * 75 / 800)


def test_more_cached_than_asked_is_all_of_it() -> None:
    assert cached_share([answered(5, prompt=10, cached=64)]) == 1
    assert cached_share([answered(5, prompt=0, cached=0)]) is None
    assert cached_share([answered(5)]) is None


exchanges = st.lists(
    st.one_of(
        st.builds(
            answered,
            st.floats(0, 1e4),
            turn=st.integers(1, 4),
            label=st.sampled_from(["light", "medium", "context:64"]),
            conversation=st.integers(0, 3),
            cached=st.none() | st.integers(0, 200),
        ),
        st.builds(refused, st.integers(1, 4), st.sampled_from(["light", "context:64"])),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(exchanges)
def test_parts_add_up_to_the_whole(run: list[Exchange]) -> None:
    whole = part(run)
    for parts in (by_turn(run), by_label(run)):
        if parts:
            assert sum(each.num_offered for each in parts.values()) == whole.num_offered == len(run)
            assert sum(each.num_ok for each in parts.values()) == whole.num_ok
            assert sum(each.ttft.successes.n for each in parts.values()) == whole.ttft.successes.n
            assert sum(each.prompt_tokens.n for each in parts.values()) == whole.prompt_tokens.n
    found = by_cache(run)
    if found is not None:
        assert found.cold.n + found.cached.n == sum(exchange.cached_tokens is not None for exchange in run)
        assert found.cached_share is None or 0 <= found.cached_share <= 1


def test_the_order_of_records_says_nothing() -> None:
    run = [answered(5, turn=2, cached=3), refused(), answered(7, label="medium"), answered(9, turn=3)]
    for order in permutations(run):
        assert (by_turn(order), by_label(order), by_cache(order)) == (
            by_turn(run),
            by_label(run),
            by_cache(run),
        )
