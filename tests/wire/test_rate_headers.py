import pytest

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.quota import NO_QUOTAS, Quota, Quotas
from headway.wire.rate_headers import duration_text, rate_headers


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (1, "1ms"),
        (12 * NS_PER_MS, "12ms"),
        (999 * NS_PER_MS + 1, "1s"),
        (NS_PER_S, "1s"),
        (8_640 * NS_PER_MS, "8.64s"),
        (360 * NS_PER_S, "6m0s"),
        (61_500 * NS_PER_MS, "1m1.5s"),
        (3600 * NS_PER_S, "1h0m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text


def test_every_limit_that_there_is_has_its_three_headers() -> None:
    quotas = Quotas(Quota(100, 99, 10 * NS_PER_MS), Quota(60_000, 59_000, NS_PER_S))
    assert rate_headers(quotas) == [
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", "99"),
        ("x-ratelimit-reset-requests", "10ms"),
        ("x-ratelimit-limit-tokens", "60000"),
        ("x-ratelimit-remaining-tokens", "59000"),
        ("x-ratelimit-reset-tokens", "1s"),
    ]
    assert rate_headers(Quotas(requests=Quota(1, 0, 1)))[0] == ("x-ratelimit-limit-requests", "1")
    assert rate_headers(NO_QUOTAS) == []
