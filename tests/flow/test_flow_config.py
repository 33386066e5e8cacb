"""Scenario 6: limits that make no sense are refused by the name of their key."""

import pytest

from headway.core.caller import Caller, CallerLimits
from headway.core.errors import ConfigError
from headway.flow.config import LimitsConfig, parse_limits
from headway.flow.terms import terms_of


def test_an_empty_table_is_the_default() -> None:
    assert parse_limits({}) == LimitsConfig()


def test_a_full_table_is_read() -> None:
    table = {
        "requests_per_s": 20,
        "floor_per_s": 2.5,
        "burst_s": 2,
        "tokens_per_min": 100_000,
        "max_concurrent": 8,
        "max_users": 500,
        "redis_url": "rediss://user:pw@redis.example:6380/1",
        "region_header": "cf-ipcountry",
        "weights": {"malformed": 0.1, "new_region": 0},
    }
    config = parse_limits(table)
    assert config.requests_per_s == 20
    assert config.weights == {"malformed": 0.1, "new_region": 0}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"request_per_s": 5}, "limits.request_per_s"),
        ({"requests_per_s": 0}, "limits.requests_per_s"),
        ({"requests_per_s": "many"}, "limits.requests_per_s"),
        ({"requests_per_s": float("inf")}, "limits.requests_per_s"),
        ({"requests_per_s": float("nan")}, "limits.requests_per_s"),
        ({"requests_per_s": 5, "floor_per_s": 6}, "limits.floor_per_s"),
        ({"floor_per_s": -1}, "limits.floor_per_s"),
        ({"burst_s": 0}, "limits.burst_s"),
        ({"tokens_per_min": 0}, "limits.tokens_per_min"),
        ({"tokens_per_min": 1.5}, "limits.tokens_per_min"),
        ({"max_concurrent": 0}, "limits.max_concurrent"),
        ({"max_concurrent": True}, "limits.max_concurrent"),
        ({"max_users": -3}, "limits.max_users"),
        ({"redis_url": "localhost:6379"}, "limits.redis_url"),
        ({"redis_url": "redis://[half"}, "limits.redis_url"),
        ({"redis_url": "redis://host:many/0"}, "limits.redis_url"),
        ({"region_header": "two words"}, "limits.region_header"),
        ({"weights": {"typing": 1}}, "limits.weights.typing"),
        ({"weights": {"malformed": 0.1, "burst": 3}}, "limits.weights.burst"),
        ({"weights": {"burst": "much"}}, "limits.weights.burst"),
        ({"weights": 3}, "limits.weights"),
    ],
)
def test_a_mistake_is_named_by_its_key(table: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_limits(table)
    assert caught.value.message.startswith(key), caught.value.message


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_limits({"redis_url": "http://user:secret@host"})
    assert "secret" not in caught.value.message


def test_a_password_is_not_printed_with_the_settings() -> None:
    config = parse_limits({"redis_url": "redis://:secret@host/0", "max_users": 7})
    assert config.redis_url == "redis://:secret@host/0"
    assert "secret" not in f"{config!r} {config}"
    assert "max_users=7" in repr(config)


def test_a_caller_has_his_own_limits_or_the_servers() -> None:
    config = LimitsConfig(requests_per_s=100, tokens_per_min=1000, max_concurrent=4)
    assert terms_of(Caller(), config).base == 100
    own = terms_of(Caller(limits=CallerLimits(requests_per_s=5, max_concurrent=2)), config)
    assert (own.base, own.floor, own.tokens_per_min, own.max_concurrent) == (5, 5, 1000, 2)


def test_a_part_of_a_gateway_is_never_nothing() -> None:
    config = LimitsConfig(requests_per_s=100, tokens_per_min=2, max_concurrent=2)
    part = terms_of(Caller(), config, num_gateways=4)
    assert (part.base, part.floor) == (25, 2.5)
    assert (part.tokens_per_min, part.whole_tokens_per_min, part.max_concurrent) == (1, 2, 1)


def test_a_low_rate_needs_no_word_on_the_floor() -> None:
    config = parse_limits({"requests_per_s": 2})
    assert (config.requests_per_s, config.floor_per_s) == (2, 2)
    assert parse_limits({}).floor_per_s == parse_limits({"requests_per_s": 50}).floor_per_s == 10
