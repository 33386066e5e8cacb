import pytest

import headway.client
from headway.client import Client, Deadlines, Endpoint, Hedging, Throttling
from headway.core.errors import ConfigError


def test_public_names() -> None:
    assert headway.client.__all__ == [
        "Answer",
        "AnswerCut",
        "AnswerMalformed",
        "Attempt",
        "CallError",
        "CannedAnswer",
        "Client",
        "CodeContext",
        "DeadlinePassed",
        "Deadlines",
        "Delta",
        "Endpoint",
        "Hedging",
        "Refused",
        "Stream",
        "SyncClient",
        "SyncStream",
        "Throttled",
        "Throttling",
        "ToolCall",
        "ToolCallDelta",
        "Unreachable",
        "Usage",
    ]
    assert all(hasattr(headway.client, name) for name in headway.client.__all__)


@pytest.mark.parametrize(
    ("url", "base_url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("https://host/v1/", "https://host/v1"),
        ("https://host/openai/v2", "https://host/openai/v2"),
        ("http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_addresses(url: str, base_url: str) -> None:
    assert Endpoint(url=url).base_url == base_url


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:0", "http://host:x", "http://["]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        Endpoint(url=url)


def test_a_key_is_never_shown() -> None:
    endpoint = Endpoint(
        url="https://me:pass@host", model="m", api_key="hw_secret", headers={"X-Key": "hidden"}
    )
    assert "secret" not in repr(endpoint)
    assert "hidden" not in repr(endpoint)
    assert endpoint.label == "m at host"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Endpoint(url="http://h", first_token_s=0), "first_token_s"),
        (lambda: Endpoint(url="http://h", fields={"n": 2}), "`n`"),
        (lambda: Deadlines(total_s=0), "total_s"),
        (lambda: Deadlines(idle_s=float("nan")), "idle_s"),
        (lambda: Deadlines(first_token_s=float("inf")), "first_token_s"),
        (lambda: Hedging(share=0), "share"),
        (lambda: Throttling(k=0.5), "k"),
        (lambda: Client([]), "endpoint"),
        (lambda: Client([Endpoint(url="http://h")], max_retries=-1), "max_retries"),
    ],
)
def test_what_can_never_work_is_refused_by_name(make: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()  # type: ignore[operator]
