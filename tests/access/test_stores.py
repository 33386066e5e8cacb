"""What every store of tokens does: SQLite's and Redis's alike."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headway.access import redis_store
from headway.access.places import open_store
from headway.access.stored_token import StoredToken
from headway.access.token_store import MAX_STANDING_BYTES, STANDING_DAYS, StoreFailed, TokenStore
from headway.core.caller import CallerLimits
from support.memory_tokens import NOW_S, stored
from support.redis_server import needs_redis, redis_server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "tokens.sqlite3")
    else:
        with redis_server(tmp_path) as server:
            yield server.url


@pytest.fixture
async def store(location: str) -> AsyncIterator[TokenStore]:
    store = open_store(location, timeout_s=5)
    yield store
    await store.close()


async def test_a_token_is_found_by_its_digest_and_by_its_name(store: TokenStore) -> None:
    token = stored(1, expires_s=NOW_S + 5)
    await store.create(token)
    assert await store.find_by_digest(token.digest) == token
    assert await store.show(token.token_id) == token


async def test_one_without_any_limit_keeps_none(store: TokenStore) -> None:
    token = stored(1, tenant="", limits=CallerLimits(), note="")
    await store.create(token)
    assert await store.find_by_digest(token.digest) == token


async def test_whole_rates_stay_numbers(store: TokenStore) -> None:
    limits = CallerLimits(requests_per_s=20, tokens_per_min=10**12, max_concurrent=10**6)
    await store.create(stored(1, limits=limits))
    assert [token.limits for token in await store.list()] == [limits]


async def test_what_is_not_there_is_none(store: TokenStore) -> None:
    assert await store.list() == []
    await store.create(stored(1))
    assert await store.find_by_digest(stored(2).digest) is None
    assert await store.show(stored(2).token_id) is None
    assert await store.revoke(stored(2).token_id, NOW_S) is None


async def test_the_list_is_in_order_of_creation(store: TokenStore) -> None:
    for number in (3, 1, 2):
        await store.create(stored(number))
    assert [token.user for token in await store.list()] == ["user-1", "user-2", "user-3"]


async def test_a_list_has_all_of_many(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_store, "PAGE", 4)
    for number in range(10):
        await store.create(stored(number))
    assert [token.created_s - NOW_S for token in await store.list()] == [*range(10)]


async def test_a_revoked_token_stays_revoked_since_the_first_time(store: TokenStore) -> None:
    token = stored(1)
    await store.create(token)
    revoked = await store.revoke(token.token_id, NOW_S + 7)
    assert revoked == stored(1, revoked_s=NOW_S + 7)
    assert await store.revoke(token.token_id, NOW_S + 9) == revoked
    assert await store.find_by_digest(token.digest) == revoked


async def test_one_that_comes_revoked_is_kept_so(store: TokenStore) -> None:
    token = stored(1, revoked_s=NOW_S)
    await store.create(token)
    assert await store.show(token.token_id) == token


@pytest.mark.parametrize("fields", [{"token_id": "tok_000000000001"}, {"digest": stored(1).digest}])
async def test_a_name_or_digest_that_is_taken_is_refused_and_changes_nothing(
    store: TokenStore, fields: dict[str, object]
) -> None:
    await store.create(stored(1))
    with pytest.raises(StoreFailed) as caught:
        await store.create(stored(2, **fields))
    assert caught.value.failure == "refused"
    assert await store.list() == [stored(1)]


async def test_a_standing_is_what_was_kept_last(store: TokenStore) -> None:
    assert await store.get_standing("jwt_000000000001") is None
    await store.put_standing("jwt_000000000001", b"\x00one", NOW_S)
    await store.put_standing("jwt_000000000001", b"two\xff", NOW_S)
    await store.put_standing("tok_000000000001", b"", NOW_S)
    assert await store.get_standing("jwt_000000000001") == b"two\xff"
    assert await store.get_standing("tok_000000000001") == b""


async def test_a_standing_is_bounded(store: TokenStore) -> None:
    await store.put_standing("tok_000000000001", bytes(MAX_STANDING_BYTES), NOW_S)
    with pytest.raises(ValueError, match="at most"):
        await store.put_standing("tok_000000000001", bytes(MAX_STANDING_BYTES + 1), NOW_S)


async def test_the_first_key_is_the_one_that_counts(store: TokenStore) -> None:
    assert await store.get_key_check() is None
    assert await store.agree_on_key(b"first") == b"first"
    assert await store.get_key_check() == b"first"
    assert await store.agree_on_key(b"second") == b"first"
    assert await store.agree_on_key(b"first") == b"first"


async def test_two_that_are_open_see_what_the_other_writes(store: TokenStore, location: str) -> None:
    other = open_store(location, timeout_s=5)
    try:
        await store.create(stored(1))
        assert await other.list() == [stored(1)]
        await other.revoke(stored(1).token_id, NOW_S)
        assert await store.show(stored(1).token_id) == stored(1, revoked_s=NOW_S)
    finally:
        await other.close()


async def test_what_is_kept_outlives_who_kept_it(store: TokenStore, location: str) -> None:
    await store.create(stored(1))
    other = open_store(location, timeout_s=5)
    try:
        assert await other.find_by_digest(stored(1).digest) == stored(1)
    finally:
        await other.close()


async def test_old_standings_go_in_sqlite_when_another_is_kept(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "tokens.sqlite3"), timeout_s=5)
    await store.put_standing("tok_000000000001", b"old", NOW_S)
    await store.put_standing("tok_000000000002", b"new", NOW_S + STANDING_DAYS * 86_400)
    assert await store.get_standing("tok_000000000001") == b"old"
    await store.put_standing("tok_000000000003", b"newer", NOW_S + STANDING_DAYS * 86_400 + 1)
    assert await store.get_standing("tok_000000000001") is None
    assert await store.get_standing("tok_000000000002") == b"new"
    await store.close()


def test_a_stored_token_prints_its_name_alone() -> None:
    assert repr(stored(1)) == "StoredToken(tok_000000000001)"
    assert isinstance(stored(1), StoredToken)
