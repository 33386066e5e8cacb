"""Who calls, by token or by JWT; what is opened from a configuration, and what refuses to be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.access.callers import open_callers
from headway.access.config import AccessConfig, parse_access
from headway.access.jwt_claims import public_id_of
from headway.access.places import agreed_key, key_path, open_store, state_folder
from headway.access.server_key import has_key, key_check, read_or_make_key
from headway.access.token_store import StoreFailed
from headway.core.clock import ManualClock
from headway.core.errors import ConfigError, Unauthenticated
from headway.core.secret import Secret
from support.jwt_issuer import ISSUER, NOW_S, jwk, rsa_key, signed, write_jwks
from support.memory_tokens import SERVER_KEY, MemoryTokenStore, stored, token_number

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokens.key").write_bytes(SERVER_KEY)
    (tmp_path / "tokens.key").chmod(0o600)
    write_jwks(tmp_path / "keys.json", jwk(rsa_key()))
    return tmp_path


TOKENS: dict[str, Any] = {"store": "tokens.sqlite3"}
JWT: dict[str, Any] = {"issuer": ISSUER, "audience": "headway", "jwks_file": "keys.json"}


async def who(config: AccessConfig, shown: Secret | None, *, make: bool = False) -> str:
    callers = await open_callers(config, clock=ManualClock(), now_s=lambda: NOW_S)
    try:
        if make:
            assert callers.store is not None
            await callers.store.create(stored(1))
        return (await callers.identify(shown)).user
    finally:
        await callers.close()


async def test_both_ways_in(folder: Path) -> None:
    config = parse_access({"tokens": TOKENS, "jwt": JWT}, folder)
    assert await who(config, token_number(1), make=True) == "user-1"
    assert await who(config, signed(rsa_key(), "RS256")) == "ada|1"


async def test_a_way_that_is_not_configured_is_closed(folder: Path) -> None:
    with pytest.raises(Unauthenticated):
        await who(parse_access({"tokens": TOKENS}, folder), signed(rsa_key(), "RS256"))
    with pytest.raises(Unauthenticated):
        await who(parse_access({"jwt": JWT | {"key_file": "tokens.key"}}, folder), token_number(1))


async def test_a_callers_public_name_is_under_the_servers_key(folder: Path) -> None:
    names = []
    for tables in ({"tokens": TOKENS, "jwt": JWT}, {"jwt": JWT | {"key_file": "tokens.key"}}):
        callers = await open_callers(parse_access(tables, folder), clock=ManualClock(), now_s=lambda: NOW_S)
        names.append((await callers.identify(signed(rsa_key(), "RS256"))).token_id)
        await callers.close()
    assert names == [public_id_of(SERVER_KEY, ISSUER, "ada|1")] * 2


async def test_whoever_shows_nothing_is_told_what_to_show(folder: Path) -> None:
    with pytest.raises(Unauthenticated, match="send `authorization: Bearer TOKEN`"):
        await who(parse_access({"tokens": TOKENS}, folder), None)


async def test_where_nothing_is_configured_nobody_gets_in(folder: Path) -> None:
    with pytest.raises(Unauthenticated):
        await who(parse_access({}, folder), token_number(1))


async def test_another_key_than_the_stores_is_refused_at_once(folder: Path) -> None:
    config = parse_access({"tokens": TOKENS}, folder)
    await who(config, token_number(1), make=True)
    (folder / "tokens.key").write_bytes(bytes(32))
    with pytest.raises(ConfigError, match="is not the key of the tokens in"):
        await open_callers(config, clock=ManualClock())


async def test_a_store_that_fails_refuses_to_start_and_says_how(folder: Path) -> None:
    (folder / "tokens.sqlite3").write_text("something else")
    with pytest.raises(
        ConfigError, match=r"tokens\.sqlite3 cannot be used: it is damaged, or something else"
    ):
        await open_callers(parse_access({"tokens": TOKENS}, folder), clock=ManualClock())


async def test_keys_for_jwt_that_are_not_there_refuse_to_start(folder: Path) -> None:
    tables = {"tokens": TOKENS, "jwt": JWT | {"jwks_file": "none.json"}}
    with pytest.raises(ConfigError, match=r"`jwt\.jwks_file`"):
        await open_callers(parse_access(tables, folder), clock=ManualClock())


async def test_a_store_that_fails_agrees_on_no_key(tmp_path: Path) -> None:
    store = MemoryTokenStore()
    store.failure = StoreFailed("slow", "memory")
    with pytest.raises(ConfigError, match="does not answer in time"):
        await agreed_key(store, tmp_path / "tokens.key")


async def test_the_first_key_is_made_and_agreed_on(tmp_path: Path) -> None:
    store = MemoryTokenStore()
    key = await agreed_key(store, tmp_path / "tokens.key", lambda num_bytes: b"k" * num_bytes)
    assert (key, store.key_check) == (b"k" * 32, key_check(b"k" * 32))


async def test_a_key_that_is_not_there_is_not_made_for_tokens_that_another_one_keeps(tmp_path: Path) -> None:
    store = MemoryTokenStore()
    key = await agreed_key(store, tmp_path / "tokens.key")
    with pytest.raises(ConfigError, match=r"no key in .*tokens\.kye"):
        await agreed_key(store, tmp_path / "tokens.kye")
    assert not has_key(tmp_path / "tokens.kye")
    other = tmp_path / "other.key"
    read_or_make_key(other, lambda num_bytes: b"o" * num_bytes)
    with pytest.raises(ConfigError, match="not the key"):
        await agreed_key(store, other)
    assert has_key(other)
    assert await agreed_key(store, tmp_path / "tokens.key") == key


async def test_a_key_that_another_store_found_meanwhile_stays(tmp_path: Path) -> None:
    one, two = MemoryTokenStore(), MemoryTokenStore()
    one.key_check = key_check(b"l" * 32)  # of a key that was lost
    path = tmp_path / "tokens.key"

    async def starts_at_once(check: bytes) -> bytes:
        await agreed_key(two, path)
        return await MemoryTokenStore.agree_on_key(one, check)

    one.agree_on_key = starts_at_once  # type: ignore[method-assign]
    with pytest.raises(ConfigError):
        await agreed_key(one, path)
    await agreed_key(two, path)


async def test_a_place_where_no_key_can_be_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made: File name too long"):
        await agreed_key(MemoryTokenStore(), tmp_path / ("k" * 300))


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder({"XDG_STATE_HOME": "/var/state"}) == Path("/var/state/headway")
    monkeypatch.setenv("HOME", "/home/ada")
    assert state_folder({}) == Path("/home/ada/.local/state/headway")
    assert state_folder({"XDG_STATE_HOME": "relative"}) == Path("/home/ada/.local/state/headway")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert key_path("/srv/t.db", None) == Path("/srv/tokens.key")
    assert key_path("/srv/t.db", Path("/run/key")) == Path("/run/key")
    assert key_path("~/t.db", None) == key_path(None, Path("~/tokens.key")) == Path("/home/ada/tokens.key")
    assert open_store("~/t.db", timeout_s=1).place == "/home/ada/t.db"
    assert key_path(None, None) == key_path("redis://h/0", None) == state_folder() / "tokens.key"
    assert open_store(None, timeout_s=1).place == "/home/ada/.local/state/headway/tokens.sqlite3"


def test_a_url_of_something_else_is_no_store() -> None:
    with pytest.raises(ConfigError, match="redis://") as caught:
        open_store("postgres://ada:sesame@db/0", timeout_s=1)
    assert "sesame" not in caught.value.message


@pytest.mark.parametrize(
    ("module", "tables", "told"),
    [
        (
            "redis",
            {"tokens": {"store": "redis://127.0.0.1:1/0"}},
            "A store in Redis needs redis-py: `make extras`",
        ),
        ("jwt", {"jwt": JWT}, "[jwt] needs PyJWT: `make extras`"),
    ],
)
def test_what_the_extra_has_is_needed_only_where_it_is_configured(
    folder: Path, module: str, tables: dict[str, Any], told: str
) -> None:
    code = f"""
import asyncio, pathlib, sys
sys.modules[{module!r}] = None
from headway.access.callers import open_callers
from headway.access.config import parse_access
from headway.core.clock import MonotonicClock
from headway.core.errors import ConfigError

async def opened(tables):
    callers = await open_callers(parse_access(tables, pathlib.Path({str(folder)!r})), clock=MonotonicClock())
    await callers.close()

asyncio.run(opened({{"tokens": {{"store": "tokens.sqlite3"}}}}))
assert not {{"redis", "jwt", "cryptography"}} & {{name for name, found in sys.modules.items() if found}}
try:
    asyncio.run(opened({tables!r}))
except ConfigError as error:
    print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(told)
    assert 'pip install "headway[gateway]"' in done.stdout
