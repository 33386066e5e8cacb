"""Differences of Prometheus pages: exact for counters, honest bounds for percentiles, restarts seen."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.distribution import LEAST_SAMPLES, PERCENTILES
from headway.lab.metric_page import MetricPage, growth, parse_page

BOUNDS_S = (0.001, 0.005, 0.02, 0.08, 0.25, 1.0)


def histogram(values_s: Sequence[float], name: str = "x_seconds", labels: str = 'model="m"') -> str:
    counts = [0] * (len(BOUNDS_S) + 1)
    for value in values_s:
        counts[bisect_left(BOUNDS_S, value)] += 1
    lines = [f"# TYPE {name} histogram"]
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], accumulate(counts), strict=True):
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {count}')
    return "\n".join(
        [*lines, f"{name}_count{{{labels}}} {len(values_s)}", f"{name}_sum{{{labels}}} {sum(values_s)}", ""]
    )


def counter(value: float, name: str = "c", labels: str = 'model="m"') -> str:
    return f"# TYPE {name}_total counter\n{name}_total{{{labels}}} {value}\n"


def page(text: str) -> MetricPage:
    found = parse_page(text)
    assert found is not None
    return found


times = st.lists(st.floats(0.0001, 3.0), max_size=150)


@given(times, times)
def test_a_percentile_lies_within_its_bounds(earlier: list[float], during: list[float]) -> None:
    grown = growth(page(histogram(earlier)), page(histogram(earlier + during)), ["x_seconds"])
    found = grown.histogram("x_seconds")
    assert found is not None
    assert (found.n, grown.restarted) == (len(during), False)
    assert found.mean == (pytest.approx(1000 * sum(during) / len(during), abs=1e-6) if during else None)
    ordered = sorted(during)
    for name, share in PERCENTILES.items():
        bounds = found.percentiles[name]
        if len(during) < LEAST_SAMPLES.get(name, 1):
            assert bounds is None
            continue
        assert bounds is not None
        exact = ordered[math.ceil(round(len(during) * share, 9)) - 1]
        assert bounds[0] / 1000 < exact <= bounds[1] / 1000 + 1e-12
        assert bounds[0] in [0, *(bound * 1000 for bound in BOUNDS_S)]
        assert bounds[1] in [*(bound * 1000 for bound in BOUNDS_S), math.inf]


def test_series_of_one_family_are_added_up_and_chosen() -> None:
    before = page(counter(1) + counter(5, labels='model="n"').split("\n", 1)[1])
    after = page(
        counter(3) + counter(9, labels='model="n"').split("\n", 1)[1] + histogram([0.01], labels='a="b"')
    )
    grown = growth(before, after, ["c", "x_seconds"])
    assert grown.total("c_total") == 6
    assert grown.total("c_total", lambda labels: ("model", "m") in labels) == 2
    found = grown.histogram("x_seconds")  # it appeared meanwhile
    assert found is not None
    assert found.n == 1
    assert grown.total("d_total") is None
    assert grown.histogram("y_seconds") is None


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        (counter(5), counter(5), False),
        (counter(5), counter(2), True),
        (counter(5), "", True),
        (counter(5), counter(9, labels='model="n"'), True),
        (histogram([1, 2]), histogram([0.1]), True),
        (
            "process_start_time_seconds 10.5\n" + counter(1),
            "process_start_time_seconds 11\n" + counter(2),
            True,
        ),
        (
            "process_start_time_seconds 10.5\n" + counter(1),
            "process_start_time_seconds 10.5\n" + counter(2),
            False,
        ),
        (counter(5, name="unasked"), counter(2, name="unasked"), False),
    ],
)
def test_a_counter_that_fell_tells_of_a_restart(before: str, after: str, restarted: bool) -> None:
    assert growth(page(before), page(after), ["c", "x_seconds"]).restarted is restarted


def test_after_a_restart_counts_are_those_since_then() -> None:
    grown = growth(
        page(counter(50) + histogram([1, 1])), page(counter(2) + histogram([0.1])), ["c", "x_seconds"]
    )
    assert grown.total("c_total") == 2
    found = grown.histogram("x_seconds")
    assert found is not None
    assert (found.n, found.mean) == (1, 100)


NOISE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["# TYPE c_total counter", "c_total", "{", "}", '"', "le=", "a", " ", "\n", "1", "NaN"]
        )
    ).map("".join),
)


@given(NOISE)
def test_whatever_a_server_says_is_read_or_is_no_page(text: str) -> None:
    found = parse_page(text)
    if found is not None:
        grown = growth(found, found, found.series)
        for name in found.series:
            grown.total(name)
            grown.histogram(name.removesuffix("_bucket"))


@pytest.mark.parametrize("le", ["", "x", "NaN"])
def test_a_bucket_without_a_bound_is_passed_over(le: str) -> None:
    text = f'# TYPE x_seconds histogram\nx_seconds_bucket{{le="{le}"}} 1\nx_seconds_bucket{{le="+Inf"}} 2\n'
    found = parse_page(text)
    if found is not None:
        values = growth(page(""), found, ["x_seconds"]).histogram("x_seconds")
        assert values is not None
        assert values.n == 2
        assert values.percentiles["p50"] == (0, math.inf)


def test_what_is_no_number_is_passed_over() -> None:
    assert page("# TYPE c_total counter\nc_total NaN\n").series == {"c_total": {}}
