import hashlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.arrivals import (
    MIN_RATE,
    Closed,
    ClosedSteps,
    Constant,
    Gamma,
    Open,
    Poisson,
    Process,
    Stage,
    offsets_ns,
    steady,
)

HOUR_NS = 3600 * NS_PER_S

PROCESSES = st.one_of(
    st.just(Constant()), st.just(Poisson()), st.builds(Gamma, st.floats(min_value=0.05, max_value=100))
)
RATES = st.just(0.0) | st.floats(MIN_RATE, 200)
STAGES = st.builds(Stage, RATES, RATES, st.integers(min_value=1, max_value=5 * NS_PER_S))
OPEN_LOADS = st.builds(
    Open,
    st.lists(STAGES, min_size=1, max_size=4)
    .filter(lambda stages: any(stage.from_rate or stage.to_rate for stage in stages))
    .map(tuple),
    PROCESSES,
)


def test_constant_arrivals_are_even_from_the_start() -> None:
    offsets = list(offsets_ns(steady(4, Constant()), 1, num_requests=4))
    assert offsets == [0, 250 * NS_PER_MS, 500 * NS_PER_MS, 750 * NS_PER_MS]


def test_constant_deadlines_do_not_drift() -> None:
    *_, last = offsets_ns(steady(3, Constant()), 1, num_requests=300_001)
    assert last == 100_000 * NS_PER_S


@pytest.mark.parametrize("rate", [0.1, 0.3, 1, 3, 7, 49, 500])
def test_a_constant_rate_delivers_it_in_any_whole_duration(rate: float) -> None:
    assert len(list(offsets_ns(steady(rate, Constant()), 1, duration_ns=30 * NS_PER_S))) == round(30 * rate)


@given(OPEN_LOADS, st.integers())
def test_offsets_never_fall_and_lie_within_the_stages(load: Open, seed: int) -> None:
    total_ns = sum(stage.duration_ns or 0 for stage in load.stages)
    offsets = list(offsets_ns(load, seed, num_requests=500))
    assert all(earlier <= later for earlier, later in itertools.pairwise([0, *offsets, total_ns - 1]))


@given(OPEN_LOADS)
def test_constant_stages_have_as_many_requests_as_are_expected(load: Open) -> None:
    expected = sum(stage.expected() for stage in load.stages)
    assert len(list(offsets_ns(Open(load.stages, Constant()), 1))) == math.ceil(expected)


@given(OPEN_LOADS, st.integers(), st.integers(0, 50), st.integers(0, 5 * NS_PER_S))
def test_bounds_cut_and_do_not_stretch(load: Open, seed: int, num_requests: int, duration_ns: int) -> None:
    whole = list(offsets_ns(load, seed))
    cut = list(offsets_ns(load, seed, num_requests=num_requests, duration_ns=duration_ns))
    assert cut == [offset for offset in whole if offset < duration_ns][:num_requests]


def test_a_vanishing_share_of_a_ramp_is_reached_at_once() -> None:
    """Gamma gaps of a small shape are as small as floats can be, the squares of their roots smaller."""
    assert Stage(0, MIN_RATE, HOUR_NS).reached_ns(5e-324) == 0


@given(RATES, RATES, st.integers(NS_PER_MS, HOUR_NS), st.floats(0, 1))
def test_a_ramp_reaches_what_its_rate_adds_up_to(
    from_rate: float, to_rate: float, duration_ns: int, share: float
) -> None:
    stage = Stage(from_rate, to_rate, duration_ns)
    if not stage.expected():
        return  # no arrival is ever placed in it
    expected = float(stage.expected()) * share
    at_s, duration_s = stage.reached_ns(expected) / NS_PER_S, duration_ns / NS_PER_S
    area = from_rate * at_s + (to_rate - from_rate) / duration_s * at_s**2 / 2
    assert math.isclose(area, expected, rel_tol=1e-9, abs_tol=2e-9 * max(from_rate, to_rate))


def test_stages_follow_each_other() -> None:
    load = Open(
        (
            Stage(2, 2, NS_PER_S),
            Stage(0, 0, 10 * NS_PER_S),
            Stage(0, 4, 2 * NS_PER_S),
            Stage(1, 1, 2 * NS_PER_S),
        ),
        Constant(),
    )
    ramp = [11 * NS_PER_S + round(math.sqrt(k) * NS_PER_S) for k in (0, 1, 2, 3)]
    assert list(offsets_ns(load, 1)) == [0, NS_PER_S // 2, *ramp, 13 * NS_PER_S, 14 * NS_PER_S]


def gaps_s(process: Process, num_gaps: int = 20_000) -> list[float]:
    offsets = offsets_ns(steady(5, process), 3, num_requests=num_gaps)
    return [
        (later - earlier) / NS_PER_S for earlier, later in itertools.pairwise(itertools.chain([0], offsets))
    ]


@pytest.mark.parametrize("process", [Poisson(), Gamma(0.25), Gamma(1), Gamma(16)], ids=str)
def test_gaps_have_the_rate_s_mean_and_the_process_s_variation(process: Process) -> None:
    gaps = gaps_s(process)
    variation = 1 / math.sqrt(process.shape) if isinstance(process, Gamma) else 1.0
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert math.isclose(mean, 0.2, rel_tol=5 * variation / math.sqrt(len(gaps)))
    assert math.isclose(deviation / mean, variation, rel_tol=0.05)


def test_the_number_of_poisson_requests_varies_as_a_poisson_number_does() -> None:
    counts = [
        len(list(offsets_ns(steady(20, Poisson()), seed, duration_ns=5 * NS_PER_S))) for seed in range(300)
    ]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    assert abs(mean - 100) < 5 * math.sqrt(100 / 300)
    assert 60 < variance < 160  # 100 ± 5 √(2/299) · 100; gaps rescaled to the rate would make it 0


def test_poisson_arrivals_in_a_ramp_are_exact() -> None:
    """Given their number, Poisson arrivals are independent draws from the rate: from 0 upwards, (t / T)²."""
    load = Open((Stage(0, 400, 60 * NS_PER_S),), Poisson())
    levels = [(offset / (60 * NS_PER_S)) ** 2 for offset in offsets_ns(load, 5)]
    n = len(levels)
    assert abs(n - 12_000) < 5 * math.sqrt(12_000)
    distance = max(max((k + 1) / n - level, level - k / n) for k, level in enumerate(levels))
    assert distance < 2.47 / math.sqrt(n)  # a right sampler exceeds it for one seed in 100,000


def fingerprint(load: Open) -> str:
    offsets = offsets_ns(load, 42, num_requests=2_000)
    return hashlib.sha256(b"".join(offset.to_bytes(8) for offset in offsets)).hexdigest()[:16]


@pytest.mark.parametrize(
    ("process", "first", "pinned"),
    [
        (Poisson(), [86956250, 95394072, 113693005], "879e0f4d96b0e532"),
        (Gamma(0.5), [5846299, 11226436, 866188198], "2a49244bf9f6ad42"),
        (Gamma(4), [171472442, 409767524, 568886064], "bb9a69e7eef65e41"),
    ],
    ids=str,
)
def test_a_seed_gives_the_same_offsets_on_every_machine_and_python(
    process: Process, first: list[int], pinned: str
) -> None:
    load = Open((Stage(5, 20, 60 * NS_PER_S), Stage(20, 20)), process)
    assert list(offsets_ns(load, 42, num_requests=3)) == first
    assert fingerprint(load) == pinned


def test_seeds_differ_by_sign_too() -> None:
    one, minus_one = (list(offsets_ns(steady(5, Poisson()), seed, num_requests=3)) for seed in (1, -1))
    assert one != minus_one


def test_an_endless_load_needs_a_bound_at_once() -> None:
    with pytest.raises(ConfigError, match="--requests N or --duration S"):
        offsets_ns(steady(5, Poisson()), 1)


@pytest.mark.parametrize("rate", [-1, 1e-7, 5e-324, math.nan, math.inf, 2_000_000])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"0 or from .* requests per second"):
        Stage(rate, rate, NS_PER_S)


@pytest.mark.parametrize("shape", [0, -1, math.nan, math.inf])
def test_impossible_shapes_are_refused(shape: float) -> None:
    with pytest.raises(ConfigError, match="shape of gamma arrivals"):
        Gamma(shape)


def test_stages_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 0"):
        Stage(5, 5, 0)
    with pytest.raises(ConfigError, match="one rate above 0"):
        Stage(5, 6)
    with pytest.raises(ConfigError, match="needs a rate above 0"):
        Open((Stage(0, 0, NS_PER_S),), Poisson())
    with pytest.raises(ConfigError, match="Only the last stage"):
        Open((Stage(5, 5), Stage(5, 5, NS_PER_S)), Poisson())
    with pytest.raises(ConfigError, match="one user at least"):
        Closed(0)
    with pytest.raises(ConfigError, match="two at least"):
        ClosedSteps((Closed(4),))


@pytest.mark.parametrize(
    ("stages", "is_steady"),
    [
        ([Stage(5, 5)], True),
        ([Stage(5, 5, 10), Stage(5, 5)], True),
        ([Stage(5, 6, 10)], False),
        ([Stage(5, 5, 10), Stage(6, 6)], False),
        ([Stage(0, 0, 10), Stage(5, 5)], False),
    ],
)
def test_a_load_is_steady_if_its_rate_never_changes(stages: list[Stage], is_steady: bool) -> None:
    assert Open(tuple(stages), Poisson()).is_steady is is_steady
