from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headway.obs.space_saving import SpaceSaving

STREAMS = st.lists(st.sampled_from("abcdefghij"), max_size=200)


def counted(stream: list[str], capacity: int) -> SpaceSaving:
    counts = SpaceSaving(capacity)
    for item in stream:
        counts.add(item)
    return counts


@given(STREAMS, st.integers(1, 6))
def test_what_is_guaranteed_is_true_and_the_frequent_are_kept(stream: list[str], capacity: int) -> None:
    counts, truth = counted(stream, capacity), Counter(stream)
    assert len(counts) == min(capacity, len(truth))
    for item, count in truth.items():
        assert counts.guaranteed(item) <= count
        if count > len(stream) / capacity:
            assert item in counts._counts
            assert counts._counts[item] >= count  # so the error is what it is too high by


@given(STREAMS)
def test_with_room_for_all_counts_are_exact(stream: list[str]) -> None:
    counts, truth = counted(stream, 10), Counter(stream)
    assert {item: counts.guaranteed(item) for item in "abcdefghij"} == {
        item: truth[item] for item in "abcdefghij"
    }


@given(STREAMS, STREAMS, st.integers(1, 6))
def test_halving_keeps_what_is_guaranteed_true(first: list[str], second: list[str], capacity: int) -> None:
    counts = counted(first, capacity)
    counts.halve()
    for item in second:
        counts.add(item)
    before, after = Counter(first), Counter(second)
    assert len(counts) <= capacity
    for item in "abcdefghij":
        assert 0 <= counts.guaranteed(item) <= before[item] / 2 + after[item]


def test_the_least_counted_goes_the_one_longest_there_first() -> None:
    counts = counted([*"aabbcde"], 4)
    assert [counts.guaranteed(item) for item in "abcde"] == [2, 2, 0, 1, 1]


def test_what_is_halved_often_enough_is_forgotten() -> None:
    counts = counted([*"aaaab"], 2)
    for _ in range(3):
        counts.halve()
    assert len(counts) == 0
    assert not counts.is_full
