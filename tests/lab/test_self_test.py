"""The client measures itself; how well it does is `make bench-check`'s, not a test's."""

from dataclasses import replace

import pytest

from headway.lab.endpoint import Endpoint
from headway.lab.measurement import measure
from headway.lab.null_server import Schedule
from headway.lab.run_options import RunOptions
from headway.lab.self_test import Limit, SelfTest, null_server

pytestmark = pytest.mark.anyio

GOOD = SelfTest(
    floor_p50_ms=0.1,
    floor_p99_ms=0.9,
    ttft_error_ms=0.1,
    itl_error_ms=0.0,
    events_s=40_000.0,
    delivered_rate=499.0,
    rate_lag_p99_ms=0.3,
)


def test_a_good_client_passes() -> None:
    assert GOOD.passed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("floor_p99_ms", 1.01),
        ("ttft_error_ms", 0.21),
        ("itl_error_ms", 0.21),
        ("events_s", 29_999.0),
        ("delivered_rate", 494.0),
        ("delivered_rate", 506.0),
    ],
)
def test_each_limit_can_fail(name: str, value: float) -> None:
    found = replace(GOOD, **{name: value})
    assert not found.passed
    assert [limit.kept for limit in found.limits()].count(False) == 1


def test_a_limit_may_be_reached() -> None:
    assert Limit(name="", value=1.0, limit=1.0).kept
    assert Limit(name="", value=1.0, limit=1.0, at_least=True).kept


async def test_the_null_server_is_a_process_with_the_schedule_it_is_given() -> None:
    async with null_server(Schedule(ttft_ns=3_000_000, itl_ns=1_000_000, num_tokens=7)) as endpoint:
        assert isinstance(endpoint, Endpoint)
        found = await measure(RunOptions(endpoint=endpoint, model="m", num_requests=3))
    assert found.summary.num_ok == 3
    assert found.summary.output_tokens == 21
