"""JWT against real keys: what is taken, every way to forge one, and keys that change."""

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWS

from headway.access import jwt_check
from headway.access.config import Algorithm, JwtConfig
from headway.access.jwt_check import JwtCheck
from headway.access.key_files import read_keys
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import ConfigError, Forbidden, Unauthenticated
from headway.core.secret import Secret
from support.jwt_issuer import (
    CLAIMS,
    ISSUER,
    NOW_S,
    ec_key,
    ed_key,
    jwk,
    private_pem,
    public_pem,
    rsa_key,
    signed,
    write_jwks,
)
from support.memory_tokens import SERVER_KEY

HEADER = b'{"alg":"HS256"}'
SECRET = b"a shared secret of more than 32 bytes"


def config(*algorithms: Algorithm, **fields: Any) -> JwtConfig:
    return JwtConfig(issuer=ISSUER, audience="headway", algorithms=algorithms, **fields)


def check(
    config: JwtConfig, clock: ManualClock | None = None, now_s: Callable[[], float] = lambda: NOW_S
) -> JwtCheck:
    return JwtCheck(config, SERVER_KEY, clock=clock or ManualClock(), now_s=now_s)


def with_secret(folder: Path, data: bytes = SECRET) -> JwtConfig:
    path = folder / "secret"
    path.write_bytes(data)
    path.chmod(0o600)
    return config("HS256", secret_file=str(path))


def with_pem(folder: Path, data: bytes, *algorithms: Algorithm) -> JwtConfig:
    path = folder / "key.pem"
    path.write_bytes(data)
    return config(*algorithms, pem_file=str(path))


@pytest.fixture(scope="module")
def by_secret(tmp_path_factory: pytest.TempPathFactory) -> JwtCheck:
    return check(with_secret(tmp_path_factory.mktemp("jwt")))


@pytest.fixture
def by_rsa(tmp_path: Path) -> JwtConfig:
    return config("RS256", jwks_file=write_jwks(tmp_path / "keys.json", jwk(rsa_key(), kid="one")))


def refused(check: JwtCheck, shown: Secret) -> None:
    with pytest.raises(Unauthenticated) as caught:
        check.caller(shown)
    assert caught.value.message == jwt_check.REFUSED


@pytest.mark.parametrize(
    ("key", "algorithm"), [(rsa_key, "RS256"), (rsa_key, "PS384"), (ec_key, "ES256"), (ed_key, "EdDSA")]
)
def test_every_kind_of_key_is_taken_from_a_set_and_from_pem(
    tmp_path: Path, key: Callable[[], Any], algorithm: Algorithm
) -> None:
    shown = signed(key(), algorithm, {"kid": "one"})
    for settings in (
        config(algorithm, jwks_file=write_jwks(tmp_path / "keys.json", jwk(key(), kid="one"))),
        with_pem(tmp_path, public_pem(key()), algorithm),
    ):
        assert check(settings).caller(shown).user == "ada|1"


def test_a_shared_secret_is_taken(tmp_path: Path) -> None:
    settings = with_secret(tmp_path, SECRET + b"\n")
    assert check(settings).caller(signed(SECRET, "HS256")).user == "ada|1"
    refused(check(settings), signed(SECRET + b"!", "HS256"))


def test_the_key_that_a_jwt_names_counts(tmp_path: Path) -> None:
    path = write_jwks(tmp_path / "keys.json", jwk(rsa_key(1), kid="one"), jwk(rsa_key(2), kid="two"))
    both = check(config("RS256", jwks_file=path))
    assert both.caller(signed(rsa_key(2), "RS256", {"kid": "two"})).user == "ada|1"
    refused(both, signed(rsa_key(2), "RS256", {"kid": "one"}))
    refused(both, signed(rsa_key(2), "RS256", {"kid": "three"}))
    refused(both, signed(rsa_key(2), "RS256"))  # which of the two?


def test_without_a_name_the_only_key_counts(by_rsa: JwtConfig) -> None:
    assert check(by_rsa).caller(signed(rsa_key(), "RS256")).user == "ada|1"


def test_an_algorithm_that_is_not_configured_is_refused(by_rsa: JwtConfig) -> None:
    refused(check(by_rsa), signed(rsa_key(), "RS512", {"kid": "one"}))
    refused(check(by_rsa), signed(rsa_key(), "PS256", {"kid": "one"}))


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _by_hand(header: object, claims: object = CLAIMS, signature: bytes = b"") -> Secret:
    return Secret(
        f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}.{_b64(signature)}"
    )


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": ""},
        {"alg": None},
        {"alg": ["RS256"]},
        {},
        {"alg": "RS256"},
        {"alg": "RS256", "kid": 5},
        {"alg": "RS256", "kid": "../../dev/null"},
        {"alg": "RS256", "b64": False, "crit": ["b64"]},
        {"alg": "RS256", "crit": ["unheard-of"]},
        {"alg": "RS256", "jwk": jwk(rsa_key(9))},
        [],
    ],
)
def test_a_jwt_that_nobody_signed_is_refused(by_rsa: JwtConfig, header: object) -> None:
    refused(check(by_rsa), _by_hand(header))


def test_a_public_key_taken_for_a_secret_is_refused(tmp_path: Path) -> None:
    settings = with_pem(tmp_path, public_pem(rsa_key()), "RS256")
    head = f"{_b64(json.dumps({'alg': 'HS256'}).encode())}.{_b64(json.dumps(CLAIMS).encode())}"
    mac = hmac.digest(public_pem(rsa_key()), head.encode(), hashlib.sha256)
    refused(check(settings), Secret(f"{head}.{_b64(mac)}"))


def test_a_key_that_the_jwt_brings_along_does_not_count(by_rsa: JwtConfig) -> None:
    refused(check(by_rsa), signed(rsa_key(9), "RS256", {"jwk": jwk(rsa_key(9)), "kid": "one"}))


def test_one_that_was_changed_after_it_was_signed_is_refused(by_rsa: JwtConfig) -> None:
    head, claims, signature = signed(rsa_key(), "RS256").reveal().split(".")
    other = _b64(json.dumps(CLAIMS | {"sub": "root"}).encode())
    refused(check(by_rsa), Secret(f"{head}.{other}.{signature}"))
    refused(check(by_rsa), Secret(f"{head}.{claims}.{_b64(bytes(256))}"))
    refused(check(by_rsa), Secret(f"{head}.{claims}."))


@pytest.mark.parametrize(
    "text", ["", "a", "..", "a.b", "a.b.c.d", "....", "hw_token", "é.é.é", "e30.e30.e30"]
)
def test_what_is_no_jwt_is_refused(by_rsa: JwtConfig, text: str) -> None:
    refused(check(by_rsa), Secret(text))


@given(st.text(alphabet="eyJ0.-_=AZaz09\x00é", max_size=80))
def test_any_text_is_refused_without_failing(by_secret: JwtCheck, text: str) -> None:
    refused(by_secret, Secret(text))


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_header_and_payload_are_refused_without_failing(
    by_secret: JwtCheck, header: bytes, payload: bytes
) -> None:
    refused(by_secret, Secret(f"{_b64(header)}.{_b64(payload)}.AAAA"))
    refused(by_secret, Secret(f"{_b64(HEADER)}.{_b64(payload)}.AAAA"))


@pytest.mark.parametrize("payload", [b"[]", b"5", b"{", b"\xff", b'{"exp": NaN}', b"[" * 100_000])
def test_a_signed_payload_that_is_no_object_is_refused(tmp_path: Path, payload: bytes) -> None:
    shown = PyJWS().encode(payload, SECRET, "HS256")
    refused(check(with_secret(tmp_path)), Secret(shown))


@pytest.mark.parametrize(
    "claims", [{"iss": "x"}, {"aud": "x"}, {"exp": NOW_S - 30}, {"exp": None}, {"sub": None}]
)
def test_claims_that_do_not_count_get_the_answer_of_a_wrong_signature_and_the_log_names_them(
    by_rsa: JwtConfig, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = signed(rsa_key(), "RS256", **claims)
    refused(check(by_rsa), shown)
    (line,) = (record.getMessage() for record in caplog.records if "JWT" in record.getMessage())
    assert f"`{next(iter(claims))}`" in line


def test_claims_that_nobody_can_be_are_forbidden(by_rsa: JwtConfig) -> None:
    with pytest.raises(Forbidden, match="`sub`"):
        check(by_rsa).caller(signed(rsa_key(), "RS256", sub="two words"))


def test_one_that_was_right_expires_all_the_same(by_rsa: JwtConfig) -> None:
    now = [float(NOW_S)]
    checked = check(by_rsa, now_s=lambda: now[0])
    shown = signed(rsa_key(), "RS256")
    assert checked.caller(shown) == checked.caller(shown)
    now[0] += 89.9  # the leeway included
    checked.caller(shown)
    now[0] += 0.1
    refused(checked, shown)
    refused(checked, shown)


def test_one_that_was_right_is_not_checked_again(by_rsa: JwtConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check(by_rsa)
    shown = signed(rsa_key(), "RS256")
    checked.caller(shown)
    monkeypatch.setattr(checked, "_signed_claims", lambda _: pytest.fail("it is known"))
    assert checked.caller(shown).user == "ada|1"


def test_another_that_begins_alike_is_another(by_rsa: JwtConfig) -> None:
    checked = check(by_rsa)
    text = signed(rsa_key(), "RS256").reveal()
    checked.caller(Secret(text))
    refused(checked, Secret(text[:-1] + ("A" if text[-1] != "A" else "B")))
    refused(checked, Secret(text + "A"))


def test_keys_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", ManualClock()
    checked = check(config("RS256", jwks_file=write_jwks(path, jwk(rsa_key(1), kid="old"))), clock)
    old, new = signed(rsa_key(1), "RS256", {"kid": "old"}), signed(rsa_key(2), "RS256", {"kid": "brand-new"})
    checked.caller(old)
    write_jwks(path, jwk(rsa_key(2), kid="brand-new"))
    refused(checked, new)
    clock.advance(5 * NS_PER_S)
    assert checked.caller(new).user == "ada|1"
    refused(checked, old)  # though it was known


def test_a_file_that_breaks_leaves_the_keys_that_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keys.json", ManualClock()
    checked = check(config("RS256", jwks_file=write_jwks(path, jwk(rsa_key(1)))), clock)
    for broken in ("{", None):
        path.write_text(broken) if broken else path.unlink()
        clock.advance(5 * NS_PER_S)
        assert checked.caller(signed(rsa_key(1), "RS256")).user == "ada|1"
    assert ["stay what they were" in record.getMessage() for record in caplog.records] == [True, True]


def test_keys_for_other_uses_and_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    path = write_jwks(
        tmp_path / "keys.json",
        jwk(rsa_key(1), kid="one", use="enc"),
        jwk(rsa_key(2), kid="two", alg="RS512"),
        jwk(ec_key(), kid="three"),
        {"kty": "RSA", "kid": "four", "n": "!", "e": "AQAB"},
        {"kty": "new kind", "kid": "five"},
        jwk(rsa_key(3), kid="six", alg="RS256", use="sig"),
    )
    checked = check(config("RS256", jwks_file=path))
    assert checked.caller(signed(rsa_key(3), "RS256")).user == "ada|1"  # the only one
    refused(checked, signed(rsa_key(1), "RS256", {"kid": "one"}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no JSON"),
        ("[]", "no JWK set"),
        ('{"keys": 5}', "no JWK set"),
        ('{"keys": []}', "no key for RS256"),
        ('{"keys": [5]}', "no key for RS256"),
        (json.dumps({"keys": [jwk(ec_key())]}), "no key for RS256"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}), "holds a secret"),
        (json.dumps({"keys": [jwk(rsa_key()) | {"d": "AQAB"}]}), "holds a secret"),
        (json.dumps({"keys": [jwk(rsa_key(1), kid="a"), jwk(rsa_key(2), kid="a")]}), "have one id"),
        (json.dumps({"keys": [jwk(rsa_key(0, 1024))]}), "jwt.jwks_file"),
        (json.dumps({"keys": [jwk(rsa_key())] * 101}), "up to 100 keys"),
    ],
)
def test_a_set_that_cannot_be_used_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"jwt\.jwks_file") as caught:
        read_keys(config("RS256", jwks_file=str(path)))
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("data", "algorithm", "told"),
    [
        (b"", "RS256", "no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "RS256", "no public key"),
        (private_pem(ec_key()), "ES256", "private key"),
        (public_pem(ec_key()), "RS256", "no key for RS256"),
        (public_pem(ec_key()), "ES384", "no key for ES384"),
        (public_pem(rsa_key(0, 1024)), "RS256", "jwt.pem_file"),
    ],
)
def test_pem_that_cannot_be_used_is_told(
    tmp_path: Path, data: bytes, algorithm: Algorithm, told: str
) -> None:
    with pytest.raises(ConfigError, match=r"jwt\.pem_file") as caught:
        read_keys(with_pem(tmp_path, data, algorithm))
    assert told in caught.value.message


def test_a_secret_that_is_short_or_for_all_to_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"jwt\.secret_file"):
        read_keys(with_secret(tmp_path, b"short"))
    settings = with_secret(tmp_path)
    (tmp_path / "secret").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(settings)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(config("RS256", jwks_file=str(tmp_path / "none")))


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_check, "MAX_KNOWN", 3)
    checked = check(with_secret(tmp_path))
    for number in range(9):
        checked.caller(signed(SECRET, "HS256", sub=f"user-{number}"))
    assert len(checked._known) == 3
