"""Headers that a run sends: what is one, and that values which may be secrets are never told."""

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint
from headway.lab.request_headers import checked_header, joined, parse_header, shown


def test_a_header_is_a_name_and_a_value() -> None:
    assert parse_header("X-Headway-Class: high") == ("x-headway-class", "high")
    assert parse_header("x-key:a:b") == ("x-key", "a:b")


@pytest.mark.parametrize(
    "text",
    ["secret", ": secret", "a name: secret", "x-key:", "x-key: sec\x00ret", "x-key: secrét", "Host: secret"],
)
def test_what_is_none_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_header(text)
    assert "secret" not in caught.value.message
    assert "secrét" not in caught.value.message


def test_nothing_can_be_smuggled_in_a_value() -> None:
    with pytest.raises(ConfigError):
        checked_header("x-key", "1\r\nx-other: 2")


def test_a_later_header_replaces_an_earlier_one() -> None:
    assert joined([("a", "1"), ("b", "2")], [("a", "3")]) == (("a", "3"), ("b", "2"))


def test_only_ours_are_shown() -> None:
    assert shown((("x-headway-tenant", "t"), ("x-key", "secret"))) == {"x-headway-tenant": "t", "x-key": None}


def test_an_endpoint_sends_them_with_everything_and_shows_none() -> None:
    endpoint = parse_endpoint("http://localhost:1")
    endpoint = type(endpoint)(host="h", port=1, path="/v1", headers=(("x-key", "secret"),))
    assert b"\r\nx-key: secret\r\n" in endpoint.get("/models")
    posted = endpoint.post("/chat/completions", b"{}", (("x-own", "1"),))
    assert b"\r\nx-key: secret\r\n" in posted
    assert b"\r\nx-own: 1\r\n" in posted
    assert posted.endswith(b"\r\n\r\n{}")
    assert "secret" not in repr(endpoint)
