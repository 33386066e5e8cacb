"""The command in one process, a gateway's directory in another: what one makes and ends, the other learns."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from headway.access.callers import Callers, open_callers
from headway.access.config import AccessConfig, parse_access, read_toml
from headway.core.clock import NS_PER_S, ManualClock
from headway.core.errors import AccessUnavailable, Unauthenticated
from headway.core.secret import Secret
from support.redis_server import RedisServer, needs_redis, redis_server

pytestmark = pytest.mark.anyio

Command = Callable[..., str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture(params=["tokens.sqlite3", pytest.param("redis", marks=needs_redis)])
def access_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    store = request.param
    if store == "redis":
        store = request.getfixturevalue("server").url
    path = tmp_path / "access.toml"
    path.write_text(
        f'[tokens]\nstore = "{store}"\nkey_file = "the.key"\ncache_s = 4\ntimeout_s = 10\n[limits]\nx = 1\n'
    )
    return path


@pytest.fixture
def token(access_file: Path) -> Command:
    def run(*arguments: str) -> str:
        command = [
            sys.executable,
            "-m",
            "headway.cli.main",
            "token",
            *arguments,
            "--access",
            str(access_file),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    return run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def config(access_file: Path) -> AccessConfig:
    return parse_access({"tokens": read_toml(access_file)["tokens"]}, access_file.parent)


@pytest.fixture
async def callers(config: AccessConfig, clock: ManualClock) -> AsyncIterator[Callers]:
    callers = await open_callers(config, clock=clock)
    yield callers
    await callers.close()


async def test_a_token_works_from_when_it_is_made_until_shortly_after_it_is_revoked(
    callers: Callers, clock: ManualClock, token: Command
) -> None:
    first = Secret(token("create", "--user", "ada", "--tenant", "acme").strip())
    ada = await callers.identify(first)
    assert (ada.user, ada.tenant, ada.service_class, ada.kind) == ("ada", "acme", "normal", "user")

    second = Secret(token("create", "--user", "bob", "--class", "low", "--max-concurrent", "2").strip())
    bob = await callers.identify(second)
    assert (bob.user, bob.service_class, bob.limits.max_concurrent) == ("bob", "low", 2)

    token("revoke", ada.token_id)
    clock.advance(4 * NS_PER_S)
    with pytest.raises(Unauthenticated):
        await callers.identify(first)
    assert (await callers.identify(second)).user == "bob"


async def test_the_command_shows_what_the_gateway_keeps_of_a_caller(callers: Callers, token: Command) -> None:
    made = Secret(token("create", "--user", "ada").strip())
    ada = await callers.identify(made)
    assert callers.store is not None
    await callers.store.put_standing(
        ada.token_id, b'{"risk": 1.2, "why": ["malformed requests"]}', 1_800_000_000
    )
    shown = token("show", ada.token_id)
    assert "risk:  1.2" in shown
    assert "    malformed requests\n" in shown
    assert made.reveal() not in shown


@pytest.mark.parametrize("access_file", [pytest.param("redis", marks=needs_redis)], indirect=True)
async def test_redis_dies_and_comes_back_under_a_gateway(
    callers: Callers, clock: ManualClock, token: Command, server: RedisServer
) -> None:
    ada, bob = (Secret(token("create", "--user", user).strip()) for user in ("ada", "bob"))
    await callers.identify(ada)
    server.kill()
    clock.advance(5 * NS_PER_S)
    assert (await callers.identify(ada)).user == "ada"
    with pytest.raises(AccessUnavailable, match="it cannot be reached"):
        await callers.identify(bob)
    server.start()
    clock.advance(1 * NS_PER_S)
    assert (await callers.identify(bob)).user == "bob"
