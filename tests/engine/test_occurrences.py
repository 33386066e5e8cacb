"""The index of a text's own repetitions, against a search of the whole text."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.occurrences import MAX_CANDIDATES, MAX_MATCH, Match, Occurrences


def searched(tokens: list[int]) -> Match | None:
    """Return the best of the latest places where the last two tokens occurred before."""
    best, seen = None, 0
    for end in range(len(tokens) - 1, 1, -1):
        if tokens[end - 2 : end] != tokens[-2:]:
            continue
        seen += 1
        if seen > MAX_CANDIDATES:
            break
        length = 2
        while length < min(MAX_MATCH, end) and tokens[end - length - 1] == tokens[-length - 1]:
            length += 1
        if best is None or length > best.length:
            best = Match(end, length)
    return best


@settings(max_examples=300, derandomize=True)
@given(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=60), piece=st.integers(1, 60))
def test_the_longest_and_latest_is_found_however_the_text_came_in(tokens: list[int], piece: int) -> None:
    text = array("i")
    index = Occurrences(text)
    for start in range(0, len(tokens), piece):
        text.extend(tokens[start : start + piece])
        assert index.extend(1_000)
        assert index.longest() == searched(tokens[: start + piece])


def test_a_long_text_is_indexed_bit_by_bit() -> None:
    text = array("i", [*range(10), *range(3)])
    index = Occurrences(text)
    assert not index.extend(6)
    assert index.num_indexed == 6
    assert not index.extend(6)
    assert index.extend(6)
    assert index.longest() == Match(3, 3)
