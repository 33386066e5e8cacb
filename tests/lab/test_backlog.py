"""When streams had work waiting, and the windows in which all had."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.lab.backlog import Span, common, united, waiting_spans, windows
from support.lab_runs import answered, failed
from support.scripted_stream import play

MS = 1_000_000
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))))


def test_a_request_waits_until_its_first_token() -> None:
    assert waiting_spans([answered(10, ttft_ms=5), answered(14, ttft_ms=6)]) == [(10 * MS, 20 * MS)]
    assert waiting_spans([answered(10, ttft_ms=5), answered(16, ttft_ms=6)]) == [
        (10 * MS, 15 * MS),
        (16 * MS, 22 * MS),
    ]


def test_one_that_failed_waited_to_its_end_and_one_that_was_refused_never() -> None:
    assert waiting_spans([failed(10, after_ms=7)]) == [(10 * MS, 17 * MS)]
    assert waiting_spans([play((3, b""), status=503), play(status=None, ending="closed")]) == []


def test_what_the_client_was_late_by_is_waited_too() -> None:
    late = answered(10, ttft_ms=5, dispatched_ms=12)
    assert waiting_spans([late]) == [(10 * MS, 15 * MS)]
    assert waiting_spans([replace(late, stream="a")]) == [(10 * MS, 15 * MS)]


def test_windows_fill_each_span_from_its_start() -> None:
    assert windows([(0, 11), (20, 24), (30, 35)], 5) == [(0, 5), (5, 10), (30, 35)]


def covered(parts: list[Span]) -> set[int]:
    return {at for start, end in parts for at in range(start, end)}


@given(spans)
def test_a_union_is_in_order_apart_and_whole(parts: list[Span]) -> None:
    found = united(parts)
    assert covered(found) == covered(parts)
    assert all(left[1] < right[0] for left, right in pairwise(found))
    assert all(start < end for start, end in found)


@given(st.lists(spans, min_size=1, max_size=4))
def test_what_is_common_lies_in_every_part(parts: list[list[Span]]) -> None:
    expected = set.intersection(*(covered(part) for part in parts))
    assert covered(common([united(part) for part in parts])) == expected


def test_nothing_has_nothing_in_common() -> None:
    assert common([]) == []
