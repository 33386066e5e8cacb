"""A real Redis, killed, paused and set to refuse; and that no error tells its password."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headway.access.redis_store import MAX_CONNECTIONS, RedisTokenStore, without_password
from headway.access.token_store import StoreFailed
from headway.core.errors import ConfigError
from support.memory_tokens import NOW_S, stored
from support.redis_server import RedisServer, needs_redis, redis_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisTokenStore]:
    store = RedisTokenStore(server.url, timeout_s=5)
    await store.create(stored(1))
    yield store
    await store.close()


async def failure_of(store: RedisTokenStore) -> str:
    with pytest.raises(StoreFailed) as caught:
        await store.find_by_digest(stored(1).digest)
    return caught.value.failure


@needs_redis
async def test_one_that_is_killed_is_told_and_used_again_once_it_is_back(
    server: RedisServer, store: RedisTokenStore
) -> None:
    server.kill()
    assert await failure_of(store) == "unreachable"
    server.start()
    assert await store.find_by_digest(stored(1).digest) is None  # it wrote nothing down
    await store.create(stored(2))
    assert await store.list() == [stored(2)]


@needs_redis
async def test_a_connection_that_broke_is_made_anew_unseen(
    server: RedisServer, store: RedisTokenStore
) -> None:
    server.kill()
    server.start()
    await store.create(stored(2))
    assert await store.show(stored(2).token_id) == stored(2)


@needs_redis
async def test_one_that_is_too_slow_is_told(server: RedisServer) -> None:
    store = RedisTokenStore(server.url, timeout_s=0.05)
    server.pause()
    assert await failure_of(store) == "slow"
    server.resume()
    await store.close()


@needs_redis
async def test_one_that_wants_a_password_is_told(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "sesame") as server:
        stranger = RedisTokenStore(server.url)
        assert await failure_of(stranger) == "refused"
        await stranger.close()
        wrong = RedisTokenStore(server.url.replace("//", "//:guess@"))
        with pytest.raises(StoreFailed) as caught:
            await wrong.list()
        assert "guess" not in str(caught.value)
        await wrong.close()
        right = RedisTokenStore(server.url.replace("//", "//:sesame@"))
        await right.create(stored(1))
        assert await right.list() == [stored(1)]
        await right.close()


@needs_redis
async def test_one_that_is_full_is_told(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "1") as server:
        store = RedisTokenStore(server.url)
        with pytest.raises(StoreFailed) as caught:
            await store.create(stored(1))
        assert caught.value.failure == "full"
        await store.close()


@needs_redis
async def test_one_that_can_only_be_read_is_read(server: RedisServer, store: RedisTokenStore) -> None:
    await store._ask("REPLICAOF", "127.0.0.1", server.port)  # of itself, which it never reaches
    with pytest.raises(StoreFailed) as caught:
        await store.revoke(stored(1).token_id, NOW_S)
    assert caught.value.failure == "read_only"
    assert await store.find_by_digest(stored(1).digest) == stored(1)


@needs_redis
async def test_a_record_that_is_no_token_is_told(store: RedisTokenStore) -> None:
    key = "headway:{access}:token:" + stored(1).digest.hex()
    await store._ask("HSET", key, "record", '{"token_id": 1}')
    assert await failure_of(store) == "corrupted"
    await store._ask("SET", key, "a text")
    assert await failure_of(store) == "corrupted"


@needs_redis
async def test_more_at_once_than_connections_wait_their_turn(store: RedisTokenStore) -> None:
    asking = [store.find_by_digest(stored(1).digest) for _ in range(5 * MAX_CONNECTIONS)]
    assert set(map(repr, await asyncio.gather(*asking))) == {"StoredToken(tok_000000000001)"}


@needs_redis
async def test_whoever_waits_for_a_connection_too_long_is_told(server: RedisServer) -> None:
    store = RedisTokenStore(server.url, timeout_s=0.05)
    server.pause()
    asking = [store.find_by_digest(stored(1).digest) for _ in range(2 * MAX_CONNECTIONS)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert {answer.failure for answer in answers if isinstance(answer, StoreFailed)} == {"slow"}
    assert len(answers) == 2 * MAX_CONNECTIONS
    server.resume()
    await store.close()


@needs_redis
async def test_a_standing_ends_by_itself(store: RedisTokenStore) -> None:
    await store.put_standing("tok_000000000001", b"{}", NOW_S)
    left_s = await store._ask("TTL", "headway:{access}:standing:tok_000000000001")
    assert 6 * 86_400 < left_s <= 7 * 86_400


async def test_nobody_listening_is_told(tmp_path: Path) -> None:
    store = RedisTokenStore(f"unix://{tmp_path}/none.sock")
    assert await failure_of(store) == "unreachable"
    await store.close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://ada:sesame@db.example:6380/3?socket_timeout=1", "redis://db.example:6380/3"),
        ("rediss://:sesame@[::1]/", "rediss://[::1]:6379/"),
        ("unix://ada@/run/redis.sock?password=sesame", "unix:///run/redis.sock"),
        ("redis://ada:sesame@db.example:port/3", "(a malformed URL)"),
    ],
)
def test_a_url_is_told_without_its_password(url: str, told: str) -> None:
    assert without_password(url) == told


def test_a_url_that_is_none_is_refused_without_being_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        RedisTokenStore("redis://ada:sesame@db.example:port/3")
    assert "sesame" not in caught.value.message
