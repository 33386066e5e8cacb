"""What of a request's headers is a credential, and that nothing quotes one that is not."""

import anthropic
import openai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.errors import QueueFull, Unauthenticated
from headway.wire.credentials import MAX_CREDENTIAL_CHARS, challenge, parse_credentials

TOKEN = b"hw_abc-DEF_123"
OTHER = (b"content-type", b"application/json")


def shown(*headers: tuple[bytes, bytes]) -> str | None:
    secret = parse_credentials([OTHER, *headers])
    return None if secret is None else secret.reveal()


def test_no_header_is_no_credential() -> None:
    assert shown() is None


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER   "])
def test_a_bearer_token_is_taken_whatever_the_schemes_case(scheme: bytes) -> None:
    assert shown((b"authorization", scheme + TOKEN)) == TOKEN.decode()


def test_the_header_of_anthropics_sdk_is_taken() -> None:
    assert shown((b"x-api-key", TOKEN)) == TOKEN.decode()


def test_space_around_a_value_is_no_part_of_it() -> None:
    assert shown((b"authorization", b"\t Bearer " + TOKEN + b" ")) == TOKEN.decode()
    assert shown((b"x-api-key", b" " + TOKEN + b"\t")) == TOKEN.decode()


def test_both_headers_may_say_the_same() -> None:
    assert shown((b"authorization", b"Bearer " + TOKEN), (b"x-api-key", TOKEN)) == TOKEN.decode()


def test_a_jwt_fits() -> None:
    jwt = b".".join([b"e" * 200, b"A" * 2_000, b"-_" * 350])
    assert shown((b"authorization", b"Bearer " + jwt)) == jwt.decode()


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer one"), (b"x-api-key", b"two")],
        [(b"authorization", b"Bearer same"), (b"authorization", b"Bearer same")],
        [(b"x-api-key", b"same"), (b"x-api-key", b"same")],
        [(b"authorization", b"Basic dXNlcjpwdw=="), (b"x-api-key", b"same")],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer\tsecret")],
        [(b"authorization", b"Bearersecret")],
        [(b"authorization", b"secret")],
        [(b"authorization", b"Bearer secret more")],
        [(b"authorization", b"Bearer secret, Bearer more")],
        [(b"authorization", b"Bearer secr\xe9t")],
        [(b"authorization", b"Bearer secret\n")],
        [(b"authorization", b"Bearer =secret")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"sec ret")],
        [(b"x-api-key", b"sec\x00ret")],
        [(b"x-api-key", b"Bearer secret")],
        [(b"x-api-key", b"s" * (MAX_CREDENTIAL_CHARS + 1))],
    ],
)
def test_what_is_malformed_twice_or_two_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        shown(*headers)
    assert caught.value.status == 401
    assert "secret" not in caught.value.message


def test_the_longest_is_taken() -> None:
    assert shown((b"x-api-key", b"s" * MAX_CREDENTIAL_CHARS)) == "s" * MAX_CREDENTIAL_CHARS


@given(name=st.sampled_from([b"authorization", b"x-api-key"]), value=st.binary(max_size=60))
@example(name=b"authorization", value=b"Bearer \xff")
def test_any_value_gives_visible_ascii_or_a_401(name: bytes, value: bytes) -> None:
    try:
        secret = parse_credentials([(name, value)])
    except Unauthenticated:
        return
    assert secret is not None
    assert secret.reveal().isascii()
    assert secret.reveal().isprintable()
    assert " " not in secret.reveal()
    assert secret.reveal().encode() in value


def test_a_401_says_how_to_ask_and_others_do_not() -> None:
    assert challenge(Unauthenticated("no")) == 'Bearer realm="headway"'
    assert challenge(QueueFull("no")) is None


def test_what_openais_and_anthropics_sdks_send_is_taken() -> None:
    token = TOKEN.decode()
    for client in (openai.OpenAI(api_key=token), anthropic.Anthropic(api_key=token)):
        headers = [(name.lower().encode(), value.encode()) for name, value in client.auth_headers.items()]
        assert headers
        assert shown(*headers) == token
        client.close()
