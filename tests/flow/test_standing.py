"""Signals, how they are forgotten, and the risk that they add up to."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.flow.signals import (
    MAX_KNOWN,
    RULES,
    SIGNALS,
    Observation,
    Signal,
    burst,
    decayed,
    novelty,
    remembered,
)
from headway.flow.standing import Standing, arrived, at, digest, noted, risk, weights_of, why

WEIGHTS = weights_of({})
observations = st.builds(
    Signal,
    st.sampled_from(["failed_auth", "malformed", "abandoned", "finished", "fingerprint", "region"]),
    st.sampled_from(["", "a", "b"]),
)


def after(kind: Observation, count: int, *, now_ns: int = 0) -> Standing:
    standing = Standing(now_ns)
    for _ in range(count):
        standing = noted(standing, Signal(kind), WEIGHTS, now_ns)
    return standing


def arrivals(standing: Standing, per_s: float, seconds: float, start_ns: int = 0) -> tuple[Standing, int]:
    now_ns = start_ns
    for _ in range(int(per_s * seconds)):
        now_ns += int(NS_PER_S / per_s)
        standing = arrived(standing, WEIGHTS, now_ns)
    return standing, now_ns


def test_a_level_is_halved_every_half_life() -> None:
    assert decayed(8, 300, 300) == 4
    assert decayed(8, 900, 300) == 1


@pytest.mark.parametrize(("kind", "count"), [("failed_auth", 10), ("malformed", 40), ("abandoned", 400)])
def test_so_many_bad_things_at_once_make_the_whole_risk(kind: Observation, count: int) -> None:
    assert risk(after(kind, count), WEIGHTS) == pytest.approx(2)
    assert risk(after(kind, count // 2), WEIGHTS) == pytest.approx(1)


def test_nothing_bad_is_no_risk() -> None:
    assert risk(Standing(0), WEIGHTS) == 0
    assert why(Standing(0), WEIGHTS) == []


def test_whoever_behaves_again_is_back_at_full_rate_after_eight_half_lives_whatever_he_did() -> None:
    standing = after("failed_auth", 100_000)
    later = at(standing, int(8 * RULES["failed_auth"].half_life_s * NS_PER_S))
    assert risk(later, WEIGHTS) < 0.01


def test_a_stream_read_to_its_end_makes_up_for_one_that_was_not() -> None:
    standing = after("abandoned", 3)
    for _ in range(5):
        standing = noted(standing, Signal("finished"), WEIGHTS, 0)
    assert standing == Standing(0)


def test_an_editor_that_abandons_a_completion_each_second_keeps_most_of_its_rate() -> None:
    standing = Standing(0)
    for second in range(600):
        standing = noted(standing, Signal("abandoned"), WEIGHTS, second * NS_PER_S)
    assert 0.3 < risk(standing, WEIGHTS) < 0.5


def test_a_burst_is_measured_by_what_is_usual() -> None:
    quiet, _ = arrivals(Standing(0), per_s=5, seconds=60)
    assert risk(quiet, WEIGHTS) == 0
    flooding, _ = arrivals(Standing(0), per_s=200, seconds=3)
    assert risk(flooding, WEIGHTS) > 1
    busy, now_ns = arrivals(Standing(0), per_s=50, seconds=900)
    same, _ = arrivals(busy, per_s=60, seconds=10, start_ns=now_ns)
    assert risk(same, WEIGHTS) < 0.05
    assert burst(recent=1000, usual=0) == 1
    assert burst(recent=50, usual=0) == 0


def test_the_first_client_is_no_news_and_another_one_is() -> None:
    assert novelty((), "a") == 0
    assert novelty(("a",), "a") == 0
    assert novelty(("a",), "b") == 1
    standing = Standing(0)
    for value in ("cli/1", "cli/1", "other/2", "cli/1"):
        standing = noted(standing, Signal("fingerprint", value), WEIGHTS, 0)
    assert [c.signal for c in why(standing, WEIGHTS)] == ["new_fingerprint"]
    assert risk(standing, WEIGHTS) == pytest.approx(0.1)
    assert standing.fingerprints == (digest("other/2"), digest("cli/1"))


def test_a_region_that_is_not_known_says_nothing() -> None:
    standing = noted(Standing(0), Signal("region", ""), WEIGHTS, 0)
    assert standing == Standing(0)
    for value in ("DE", "BR"):
        standing = noted(standing, Signal("region", value), WEIGHTS, 0)
    assert risk(standing, WEIGHTS) == pytest.approx(0.5)


def test_what_is_known_of_a_user_is_bounded() -> None:
    known: tuple[str, ...] = ()
    for number in range(100):
        known = remembered(known, str(number))
    assert known == tuple(str(number) for number in range(100 - MAX_KNOWN, 100))


def test_why_names_what_counts_most_first_and_can_be_sent() -> None:
    standing = after("malformed", 10)
    standing = noted(standing, Signal("failed_auth"), WEIGHTS, 0)
    found = why(standing, WEIGHTS)
    assert [c.signal for c in found] == ["malformed", "failed_auth"]
    assert found[0].words == "malformed requests: 10.0 of late"
    assert sum(c.share for c in found) == pytest.approx(risk(standing, WEIGHTS))
    assert msgspec.json.decode(msgspec.json.encode(standing), type=Standing) == standing


def test_a_signal_without_weight_is_not_kept() -> None:
    weights = weights_of({"malformed": 0})
    assert noted(Standing(0), Signal("malformed"), weights, 0) == Standing(0)


@given(st.lists(st.tuples(observations, st.integers(0, 3600)), max_size=40))
def test_the_risk_stays_on_its_scale_and_everything_is_forgotten(events: list[tuple[Signal, int]]) -> None:
    standing, now_ns = Standing(0), 0
    for signal, wait_s in events:
        now_ns += wait_s * NS_PER_S
        standing = arrived(noted(standing, signal, WEIGHTS, now_ns), WEIGHTS, now_ns)
        assert 0 <= risk(standing, WEIGHTS) <= 2
        assert len(standing.levels) == len(SIGNALS)
    gone = at(standing, now_ns + 20 * 1800 * NS_PER_S)
    assert gone.is_fresh
    assert at(standing, 0).at_ns == standing.at_ns
