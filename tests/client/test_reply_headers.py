from email.utils import formatdate

import pytest

from headway.client.reply_headers import retry_after_ns, should_retry
from headway.core.clock import NS_PER_S


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e300"}, 86_400),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Wed, 99 Nan 2026"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_ns(headers) == (None if seconds is None else round(seconds * NS_PER_S))


def test_a_date_far_ahead_is_bounded() -> None:
    assert retry_after_ns({"retry-after": "Fri, 31 Dec 2199 23:59:59 GMT"}) == 86_400 * NS_PER_S


@pytest.mark.parametrize(("said", "means"), [("true", True), ("FALSE", False), ("perhaps", None), ("", None)])
def test_should_retry(said: str, means: bool | None) -> None:
    assert should_retry({"x-should-retry": said}) is means
