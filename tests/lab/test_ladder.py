"""The ladder against synthetic servers whose knee is known, and against any noise: it must end."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.lab.ladder import Finding, Measured, Phase, Search, Verdict, advance, begin
from headway.lab.ladder_rules import LadderRules

RULES = LadderRules()
Server = Callable[[float], Measured]


def exact(rate: float, p95_ms: float, *, slo_kept: bool = True) -> Measured:
    return Measured(rate=rate, p95_ms=p95_ms, p95_low_ms=p95_ms, p95_high_ms=p95_ms, slo_kept=slo_kept)


def wide(rate: float, p95_ms: float) -> Measured:
    """A P95 with an upper end above every limit."""
    return Measured(rate=rate, p95_ms=p95_ms, p95_low_ms=0, p95_high_ms=math.inf)


def queue_p95_ms(rate: float, capacity: float) -> float:
    """The time in an M/M/1 system is exponential with rate capacity - rate; its 95th percentile is ln 20 times the mean."""
    return 1000 * math.log(20) / (capacity - rate) if rate < capacity else math.inf


def queue(capacity: float) -> Server:
    return lambda rate: exact(rate, queue_p95_ms(rate, capacity))


def queue_knee(capacity: float) -> float:
    return capacity - 1000 * math.log(20) / RULES.high_ms


def cliff(knee: float) -> Server:
    return lambda rate: exact(rate, 50 if rate <= knee else 5_000)


def climb(server: Server, rules: LadderRules = RULES) -> tuple[Finding, list[Measured]]:
    """Run the ladder to its end; fails if it takes more steps than it promises."""
    step: Search | Finding = begin(rules)
    measured: list[Measured] = []
    while isinstance(step, Search):
        assert len(measured) < rules.max_steps
        measured.append(server(step.rate))
        step = advance(step, measured[-1])
    return step, measured


def rates(measured: list[Measured]) -> list[float]:
    return [step.rate for step in measured]


# L5's rule, step by step


@pytest.mark.parametrize(
    ("rate", "p95_ms", "following"),
    [
        (100, 119.9, 150),  # below 120: + 50
        (470, 60, 500),  # up to the target
        (100, 120, 100),  # between: hold
        (100, 200, 100),
        (100, 200.1, 70),  # above 200: x 0.7
        (12, 300, 10),  # never under 10
        (100, math.inf, 70),
    ],
)
def test_a_step_of_the_climb_follows_the_rule(rate: float, p95_ms: float, following: float) -> None:
    search = begin(replace(RULES, start_rate=rate))
    after = advance(search, exact(rate, p95_ms))
    assert isinstance(after, Search)
    assert after.rate == pytest.approx(following, rel=1e-12)


def test_another_broken_limit_cuts_as_the_p95_does() -> None:
    after = advance(begin(replace(RULES, start_rate=100)), exact(100, 50, slo_kept=False))
    assert isinstance(after, Search)
    assert (after.phase, after.rate) == (Phase.FALL, 70)


def test_a_rate_that_holds_and_keeps_the_slo_is_left_upwards() -> None:
    _, measured = climb(lambda rate: exact(rate, 150), replace(RULES, holds=2))
    assert rates(measured)[:7] == [10, 10, 10, 60, 60, 60, 110]


def test_an_uncertain_p95_is_measured_again_and_then_taken_for_the_knee() -> None:
    _, measured = climb(lambda rate: exact(rate, 100) if rate < 100 else wide(rate, 150))
    assert rates(measured)[:5] == [10, 60, 110, 110, 85]


def test_a_fall_bisects_between_what_was_kept_and_what_broke() -> None:
    _, measured = climb(cliff(130))
    assert rates(measured)[:6] == pytest.approx([10, 60, 110, 160, 112, 136])


def test_a_fall_below_what_was_kept_does_not_widen_the_bracket() -> None:
    _, measured = climb(cliff(470))
    assert rates(measured)[9:13] == pytest.approx([460, 500, 350, 480])


def test_a_rate_kept_by_luck_is_forgotten_when_a_lower_one_breaks() -> None:
    p95s_ms = iter([50, 50, 300, 300, 300])
    step: Search | Finding = begin(RULES)
    for expected in (10, 60, 110, 77, 53.9):
        assert isinstance(step, Search)
        assert step.rate == pytest.approx(expected)
        step = advance(step, exact(step.rate, next(p95s_ms)))
    assert isinstance(step, Search)
    assert step.kept_rate is None
    assert step.rate == pytest.approx(0.7 * 53.9)


def test_an_edge_that_does_not_repeat_is_left_downwards_in_growing_steps() -> None:
    edge = Search(
        rules=RULES,
        rate=100,
        holds_left=1,
        phase=Phase.CONFIRM,
        kept_rate=100,
        broken_rate=104,
        proofs_left=2,
    )
    offered = []
    step: Search | Finding = edge
    while isinstance(step, Search):
        offered.append(step.rate)
        step = advance(step, exact(step.rate, 250 if step.rate > 80 else 50))
    assert offered == pytest.approx([100, 95, 85.5, 68.4, 68.4, 68.4])
    assert step.verdict is Verdict.FOUND
    assert step.broken_rate == pytest.approx(85.5)


def test_another_rate_than_the_one_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="was to be measured"):
        advance(begin(RULES), exact(11, 50))


# Known knees


@pytest.mark.parametrize("capacity", [30, 55, 100, 137.5, 240, 333, 480, 510])
def test_the_knee_of_a_queue_is_found_within_the_resolution(capacity: float) -> None:
    knee = queue_knee(capacity)
    finding, _ = climb(queue(capacity))
    assert finding.verdict is Verdict.FOUND
    assert finding.kept is not None
    assert finding.broken_rate is not None
    assert finding.kept.rate <= knee < finding.broken_rate
    assert finding.broken_rate - finding.kept.rate <= RULES.resolution * finding.broken_rate


@given(st.floats(10, 499.9), st.floats(10, 500), st.floats(0.001, 0.5))
def test_a_cliff_is_found_from_any_start_at_any_resolution(
    knee: float, start_rate: float, resolution: float
) -> None:
    rules = replace(RULES, start_rate=start_rate, resolution=resolution)
    finding, _ = climb(cliff(knee), rules)
    assert finding.verdict is Verdict.FOUND
    assert finding.kept is not None
    assert finding.broken_rate is not None
    assert finding.kept.rate <= knee < finding.broken_rate
    assert finding.broken_rate - finding.kept.rate <= resolution * finding.broken_rate


def test_a_server_that_never_breaks_is_measured_at_the_target_again_and_its_knee_lies_above() -> None:
    finding, measured = climb(cliff(math.inf))
    assert finding.verdict is Verdict.ABOVE_TARGET
    assert finding.kept == exact(500, 50)
    assert finding.broken_rate is None
    assert rates(measured)[-3:] == [500, 500, 500]
    assert finding.num_steps == len(measured)
    assert finding.sentence() == (
        "The SLO is kept up to the target, 500/s (P95 50 ms, 50 to 50); to find the knee, raise target_rate."
    )


@pytest.mark.parametrize("start_rate", [10, 300])
def test_a_server_broken_at_the_floor_has_its_knee_below(start_rate: float) -> None:
    finding, measured = climb(cliff(9), replace(RULES, start_rate=start_rate))
    assert finding.verdict is Verdict.BELOW_FLOOR
    assert finding.kept is None
    assert finding.broken_rate == 10
    assert rates(measured) == sorted(rates(measured), reverse=True)
    assert rates(measured)[-2:] == [10, 10]
    assert finding.sentence().startswith(
        "No rate was shown to keep the SLO, not even the floor of 10/s; lower floor_rate, loosen the SLO, or measure"
    )


def test_a_first_measurement_on_a_cold_server_does_not_end_the_ladder() -> None:
    cold = iter([5_000.0])
    finding, _ = climb(lambda rate: exact(rate, next(cold, 50)))
    assert finding.verdict is Verdict.ABOVE_TARGET


def test_a_knee_at_the_floor_itself_is_found() -> None:
    finding, _ = climb(cliff(10))
    assert finding.kept is not None
    assert finding.kept.rate == 10


def test_intervals_without_an_upper_end_prove_nothing() -> None:
    finding, _ = climb(lambda rate: wide(rate, 50))
    assert finding.verdict is Verdict.BELOW_FLOOR


def test_what_was_found_is_said_in_a_sentence() -> None:
    finding, _ = climb(queue(100))
    assert finding.sentence() == (
        "The highest rate that keeps the SLO is 81.12/s (P95 158.7 ms, 158.7 to 158.7); 85.25/s does not."
    )


# Noise


def noisy(server: Callable[[float], float], random: Random, deviation: float) -> Server:
    """Multiply the P95 by lognormal noise of `deviation`; the interval is the right one, at 95 %."""

    def measure(rate: float) -> Measured:
        p95_ms = server(rate) * math.exp(random.gauss(0, deviation))
        spread = math.exp(1.96 * deviation)
        return Measured(rate=rate, p95_ms=p95_ms, p95_low_ms=p95_ms / spread, p95_high_ms=p95_ms * spread)

    return measure


@pytest.mark.parametrize("capacity", [60, 150, 400])
def test_under_noise_the_rate_found_is_not_above_the_knee_nor_far_below(capacity: float) -> None:
    """Above it, each of three intervals would have to miss the true P95: 0.025³ a run, were they not picked."""
    knee = queue_knee(capacity)
    for seed in range(200):
        finding, _ = climb(noisy(lambda rate: queue_p95_ms(rate, capacity), Random(seed), 0.05))
        assert finding.kept is not None
        assert 0.8 * knee < finding.kept.rate <= knee


@given(st.data())
@settings(max_examples=300)
def test_no_measurements_whatever_keep_it_from_ending(data: st.DataObject) -> None:
    """Not even monotone ones: each step may answer anything. `climb` fails beyond `max_steps`."""
    floor_rate, start_rate, target_rate = sorted(
        data.draw(st.lists(st.floats(0.1, 1000), min_size=3, max_size=3))
    )
    rules = LadderRules(
        floor_rate=floor_rate,
        start_rate=start_rate,
        target_rate=target_rate,
        cut=data.draw(st.floats(0.1, 0.95)),
        step_rate=data.draw(st.floats(1, 1000)),
        resolution=data.draw(st.floats(0.001, 0.5)),
        holds=data.draw(st.integers(0, 3)),
        repeats=data.draw(st.integers(1, 3)),
    )
    random = data.draw(st.randoms(use_true_random=False))

    def answer(rate: float) -> Measured:
        p95_ms = random.choice([50.0, 119.0, 150.0, 201.0, math.inf])
        high_ms = p95_ms * random.choice([1.0, 2.0, math.inf])
        return Measured(
            rate=rate, p95_ms=p95_ms, p95_low_ms=0, p95_high_ms=high_ms, slo_kept=random.random() < 0.8
        )

    finding, measured = climb(answer, rules)
    assert finding.num_steps == len(measured)
    assert all(floor_rate <= step.rate <= target_rate for step in measured)
    if finding.kept is not None:
        assert finding.kept.slo_kept
        assert finding.kept.p95_high_ms <= rules.high_ms
        assert [step.rate for step in measured[-rules.repeats :]] == [finding.kept.rate] * rules.repeats
        assert finding.broken_rate is None or finding.kept.rate < finding.broken_rate
    if finding.verdict is not Verdict.ABOVE_TARGET:
        assert finding.broken_rate in rates(measured)


@given(st.floats(1, 1000), st.floats(0, 0.5), st.integers())
def test_monotone_servers_with_noise_end_whatever_the_knee(
    capacity: float, deviation: float, seed: int
) -> None:
    climb(noisy(lambda rate: queue_p95_ms(rate, capacity), Random(seed), deviation))


def test_the_same_measurements_give_the_same_steps() -> None:
    first, second = (climb(noisy(lambda rate: queue_p95_ms(rate, 200), Random(5), 0.1)) for _ in range(2))
    assert first == second


def test_a_p95_outside_its_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="outside its interval"):
        Measured(rate=10, p95_ms=5, p95_low_ms=6, p95_high_ms=7)
    with pytest.raises(ValueError, match="outside its interval"):
        exact(10, math.nan)
