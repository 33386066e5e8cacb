"""What the tables of the access file may hold, and that an error names the key."""

from pathlib import Path
from typing import Any

import pytest

from headway.access.config import AccessConfig, JwtConfig, TokensConfig, parse_access, read_toml
from headway.core.errors import ConfigError

JWT: dict[str, Any] = {"issuer": "https://id.example", "audience": "headway", "jwks_file": "keys.json"}
FOLDER = Path("/etc/headway")


def parse(**tables: Any) -> AccessConfig:
    return parse_access(tables, FOLDER)


def test_without_a_table_nobody_is_asked() -> None:
    assert parse() == AccessConfig(tokens=None, jwt=None)


def test_an_empty_table_takes_tokens_as_they_are_by_default() -> None:
    assert parse(tokens={}) == AccessConfig(tokens=TokensConfig(), jwt=None)


def test_paths_begin_at_the_files_folder_and_urls_do_not() -> None:
    tokens = parse(tokens={"store": "a/tokens.sqlite3", "key_file": "/run/key"}).tokens
    assert tokens == TokensConfig(store="/etc/headway/a/tokens.sqlite3", key_file="/run/key")
    assert parse(tokens={"store": "redis://h/0"}).tokens == TokensConfig(store="redis://h/0")
    assert parse(jwt=JWT).jwt == JwtConfig(
        issuer="https://id.example", audience="headway", jwks_file="/etc/headway/keys.json"
    )


def test_everything_that_a_jwt_may_say() -> None:
    jwt = parse(
        jwt={
            **JWT,
            "audience": ["headway", "chat"],
            "algorithms": ["RS256", "ES256"],
            "leeway_s": 5,
            "claims": {"user": "email", "tenant": ["org", "id"], "class": "tier", "requests_per_s": "rps"},
            "defaults": {"class": "low", "kind": "service", "tokens_per_min": 1000},
            "classes": {"gold": "high"},
            "kinds": {"root": "admin"},
        }
    ).jwt
    assert jwt is not None
    assert (jwt.claims.tenant, jwt.claims.class_, jwt.defaults.class_) == (("org", "id"), "tier", "low")
    assert (jwt.classes, jwt.kinds, jwt.defaults.tokens_per_min) == (
        {"gold": "high"},
        {"root": "admin"},
        1000,
    )


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"token": {}}, "`token` is no setting; there are tokens, jwt."),
        ({"limits": {}}, "`limits` is no setting"),
        ({"tokens": {"cash_s": 1}}, "`tokens.cash_s` is no setting; there are store, key_file, cache_s, "),
        (
            {"jwt": JWT | {"claims": {"email": "x"}}},
            "`jwt.claims.email` is no setting; there are user, tenant, class, ",
        ),
        (
            {"jwt": JWT | {"defaults": {"class_": "low"}}},
            "`jwt.defaults.class_` is no setting; there are tenant, class, ",
        ),
        ({"jwt": {"issuer": "i", "jwks_file": "f"}}, "`jwt.audience` is missing."),
        ({"tokens": 5}, "`tokens`: "),
        ({"tokens": {"cache_s": 0}}, "`tokens.cache_s`: "),
        ({"tokens": {"cache_s": "5"}}, "`tokens.cache_s`: "),
        ({"tokens": {"outage_s": float("nan")}}, "`tokens.outage_s`: "),
        ({"jwt": JWT | {"algorithms": ["none"]}}, "`jwt.algorithms[0]`: Invalid enum value 'none'"),
        ({"jwt": JWT | {"algorithms": []}}, "`jwt.algorithms`: "),
        ({"jwt": JWT | {"audience": []}}, "`jwt.audience`: "),
        ({"jwt": JWT | {"audience": ""}}, "`jwt.audience`: "),
        ({"jwt": JWT | {"classes": {"gold": "best"}}}, "`jwt.classes[...]`: Invalid enum value 'best'"),
        ({"jwt": JWT | {"defaults": {"tenant": "a b"}}}, "[jwt.defaults]: `tenant` must"),
        ({"jwt": JWT | {"defaults": {"max_concurrent": 0}}}, "[jwt.defaults]: `max_concurrent` must"),
        ({"jwt": JWT | {"defaults": {"requests_per_s": -1}}}, "[jwt.defaults]: `requests_per_s` must"),
        ({"jwt": JWT | {"pem_file": "p"}}, "it has jwks_file and pem_file."),
        ({"jwt": {"issuer": "i", "audience": "a"}}, "it has none."),
        ({"jwt": JWT | {"algorithms": ["RS256", "HS256"]}}, "`jwt.algorithms` must not mix"),
        ({"jwt": JWT | {"algorithms": ["HS256"]}}, "`jwt.algorithms` and `jwt.jwks_file` do not go together"),
        (
            {"jwt": {"issuer": "i", "audience": "a", "secret_file": "s"}},
            "`jwt.secret_file` do not go together",
        ),
        ({"tokens": {}, "jwt": JWT | {"key_file": "k"}}, "`jwt.key_file` has no use beside [tokens]"),
    ],
)
def test_what_is_wrong_is_named(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_access(tables, FOLDER)
    assert told in caught.value.message


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text('[tokens]\nstore = "s"\n')
    assert read_toml(path) == {"tokens": {"store": "s"}}


@pytest.mark.parametrize("data", [b"[tokens", b"\xff", b"#" * 2_000_000])
def test_a_file_that_is_no_toml_is_told(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "access.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"access\.toml"):
        read_toml(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")
