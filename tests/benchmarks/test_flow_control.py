"""What the benchmark of limits says: who is served under a burst and a scan, and who is slowed (rows S3, S4)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from flow_control.load import arrivals
from flow_control.render import render
from flow_control.world import LIMITERS, Limiter, simulate

SECONDS = 30


@cache
def found(load: str, limiter: Limiter) -> Mapping[str, Any]:
    return simulate(limiter, arrivals(load, SECONDS, seed=1))


def served(load: str, limiter: Limiter, group: str) -> float:
    figures = found(load, limiter)["groups"][group]
    return float(figures["served"] / figures["offered"])


def test_a_load_is_the_same_for_every_limiter() -> None:
    assert arrivals("a burst", 10, 3) == arrivals("a burst", 10, 3)
    assert arrivals("a burst", 10, 3) != arrivals("a burst", 10, 4)


@pytest.mark.parametrize("limiter", LIMITERS)
def test_without_a_flood_everybody_is_served(limiter: Limiter) -> None:
    assert served("nothing else", limiter, "normal") == 1
    assert served("nothing else", limiter, "high") == 1


def test_a_burst_no_longer_refuses_everybody() -> None:
    assert served("a burst", "one limit for all", "high") < 0.95
    for limiter in ("dynamic", "dynamic, all places lent"):
        assert served("a burst", limiter, "high") == 1
        assert served("a burst", limiter, "normal") > 0.99
    high = found("a burst", "dynamic")["groups"]["high"]
    assert high["ttft_ms"]["p99"] < 50


def test_a_scan_no_longer_hurts_others_and_its_source_is_slowed() -> None:
    assert served("a scan", "one limit for all", "normal") < 0.5
    assert served("a scan", "dynamic", "normal") == 1
    slowed = found("a scan", "dynamic")["gateway_busy"]["scanner"]
    assert slowed < 0.6 * found("a scan", "a static limit each")["gateway_busy"]["scanner"]


def test_every_request_has_one_outcome() -> None:
    for limiter in LIMITERS:
        for figures in found("a burst", limiter)["groups"].values():
            outcomes = ("served", "late", "refused_429", "refused_503", "answered_4xx")
            assert sum(figures[outcome] for outcome in outcomes) == figures["offered"]


def test_the_table_has_a_row_for_every_group() -> None:
    data = {
        "date": "2026-01-01",
        "seconds": SECONDS,
        "seed": 1,
        "loads": {"a scan": {"dynamic": found("a scan", "dynamic")}},
    }
    table = render(data, "raw.json")
    assert "`raw.json`" in table
    assert [line.split(" | ")[2] for line in table.splitlines() if line.startswith("| a scan")] == [
        "high",
        "normal",
        "scanner",
    ]
