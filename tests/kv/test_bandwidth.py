"""How fast a tier is believed to be, and when restoring beats computing."""

import pytest

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.kv.bandwidth import Bandwidth, num_worth_restoring


def test_a_rate_follows_its_measurements() -> None:
    rate = Bandwidth(1_000.0)
    assert rate.at(0) == 1_000
    for _ in range(30):
        rate = rate.observed(500, NS_PER_S, 5)
    assert rate.at(5) == pytest.approx(500, rel=0.01)
    assert rate.observed(500, 0, 5) is rate
    assert rate.observed(0, 500, 5) is rate


def test_a_slow_moment_is_forgiven_in_time() -> None:
    rate = Bandwidth(1e9)
    for _ in range(40):
        rate = rate.observed(100, NS_PER_MS, 0)
    assert rate.at(0) == pytest.approx(1e5, rel=0.01)
    assert rate.at(60 * NS_PER_S) == pytest.approx(1e7, rel=0.01)
    assert rate.at(1_200 * NS_PER_S) == pytest.approx(1e9, rel=0.001)


@pytest.mark.parametrize(
    ("rates", "prefill", "expected"),
    [
        ([], 100.0, 0),
        ([1e3] * 4, None, 4),  # nothing is known of computing yet
        ([1e3] * 4, 100.0, 4),  # 0.1 s a block against 0.16 s
        ([1e3] * 4, 200.0, 0),  # 0.1 s a block against 0.08 s
        ([1e4, 1e4, 1e3, 1e3], 200.0, 2),
        ([1e3, 1e4, 1e4], 200.0, 3),  # the slow one opens the way to two fast ones
        ([1e3, 1e3, 1e3, 1e3, 1e4], 200.0, 0),
    ],
)
def test_blocks_come_back_as_long_as_that_saves_time(
    rates: list[float], prefill: float | None, expected: int
) -> None:
    num = num_worth_restoring(rates, block_bytes=100, block_size=16, prefill_tokens_per_s=prefill)
    assert num == expected
