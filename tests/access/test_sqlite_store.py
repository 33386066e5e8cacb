"""SQLite's ways of failing, each told by its name, and what happens to files."""

import asyncio
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.access.sqlite_store import SqliteTokenStore, connect
from headway.access.token_store import StoreFailed
from support.memory_tokens import NOW_S, stored

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tokens.sqlite3"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteTokenStore]:
    store = SqliteTokenStore(path, timeout_s=0)
    await store.create(stored(1))
    yield store
    await store.close()


def connected(path: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(path, isolation_level=None))


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def delete(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def at(path: Path) -> SqliteTokenStore:
    return SqliteTokenStore(path, timeout_s=0)


async def failure_of(store: SqliteTokenStore) -> str:
    with pytest.raises(StoreFailed) as caught:
        await store.find_by_digest(stored(1).digest)
    assert caught.value.told in str(caught.value)
    return caught.value.failure


async def test_a_store_is_for_its_owner_alone_and_leaves_nothing_beside_it(path: Path) -> None:
    store = at(path)
    await store.create(stored(1))
    assert set(modes_in(path.parent).values()) == {0o600}
    await store.close()
    assert modes_in(path.parent) == {"tokens.sqlite3": 0o600}


async def test_readers_go_on_while_another_process_writes_and_writers_are_told(
    store: SqliteTokenStore, path: Path
) -> None:
    with connected(path) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert await store.find_by_digest(stored(1).digest) == stored(1)
        with pytest.raises(StoreFailed) as caught:
            await store.revoke(stored(1).token_id, NOW_S)
        assert caught.value.failure == "locked"
        writer.execute("ROLLBACK")
    assert await store.revoke(stored(1).token_id, NOW_S) is not None


async def test_one_that_is_locked_altogether_is_told_and_then_used_again(path: Path) -> None:
    store = at(path)
    await store.create(stored(1))
    await store.close()  # nobody else has it open
    store = at(path)
    with connected(path) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert await failure_of(store) == "locked"
        other.execute("COMMIT")
    assert await store.find_by_digest(stored(1).digest) == stored(1)
    await store.close()


async def test_one_that_is_gone_is_told_and_not_made_anew(store: SqliteTokenStore, path: Path) -> None:
    delete(path)
    assert await failure_of(store) == "gone"
    assert "tokens.sqlite3" not in modes_in(path.parent)


async def test_one_that_is_replaced_is_opened_anew(
    store: SqliteTokenStore, path: Path, tmp_path: Path
) -> None:
    other = SqliteTokenStore(tmp_path / "other.sqlite3")
    await other.create(stored(2))
    await other.close()
    (tmp_path / "other.sqlite3").replace(path)
    assert await store.list() == [stored(2)]


async def test_what_a_deleted_store_left_beside_it_does_not_get_into_a_new_one(
    store: SqliteTokenStore, path: Path
) -> None:
    with connected(path) as writer:  # by hand, so that it stays in the log
        writer.execute("UPDATE tokens SET user = 'ghost'")
        delete(path)
        other = at(path)
        assert await other.list() == []
        await other.create(stored(2))
        assert await store.list() == [stored(2)]
        await other.close()
    assert await store.list() == [stored(2)]


async def test_what_a_replaced_store_left_beside_it_does_not_get_into_the_new_one(
    store: SqliteTokenStore, path: Path, tmp_path: Path
) -> None:
    other = at(tmp_path / "other.sqlite3")
    await other.create(stored(2))
    await other.close()
    await store.put_standing("tok_000000000001", b"in the log", NOW_S)
    (tmp_path / "other.sqlite3").replace(path)
    assert await store.list() == [stored(2)]
    assert await store.get_standing("tok_000000000001") is None
    reader = at(path)
    assert await reader.list() == [stored(2)]
    await reader.close()


async def test_one_that_is_moved_away_and_back_has_lost_nothing(
    store: SqliteTokenStore, path: Path, tmp_path: Path
) -> None:
    await store.put_standing("tok_000000000001", b"in the log", NOW_S)
    shutil.move(path, tmp_path / "away")
    assert await failure_of(store) == "gone"
    shutil.move(tmp_path / "away", path)
    assert await store.list() == [stored(1)]
    assert await store.get_standing("tok_000000000001") == b"in the log"


async def test_a_copy_of_the_file_alone_has_every_token(
    store: SqliteTokenStore, path: Path, tmp_path: Path
) -> None:
    await store.revoke(stored(1).token_id, NOW_S)
    shutil.copy(path, tmp_path / "copy.sqlite3")
    copy = at(tmp_path / "copy.sqlite3")
    assert await copy.list() == [stored(1, revoked_s=NOW_S)]
    await copy.close()


async def test_without_leave_none_is_made(tmp_path: Path) -> None:
    store = SqliteTokenStore(tmp_path / "none.sqlite3", create=False)
    assert await failure_of(store) == "gone"
    assert modes_in(tmp_path) == {}
    await store.close()


@pytest.mark.parametrize(
    "data", [b"", b"not a database, but long enough to have a header of one hundred bytes" * 2]
)
def test_a_file_of_something_else_is_told_and_left_as_it_is(path: Path, data: bytes) -> None:
    async def failure() -> str:
        store = at(path)
        try:
            return await failure_of(store)
        finally:
            await store.close()

    path.parent.mkdir()
    path.write_bytes(data)
    assert asyncio.run(failure()) == "corrupted"
    assert path.read_bytes() == data


async def test_one_that_is_damaged_is_told(path: Path) -> None:
    store = at(path)
    await store.create(stored(1))
    await store.close()
    damage(path)
    store = at(path)
    assert await failure_of(store) == "corrupted"
    delete(path)
    assert await failure_of(store) == "gone"
    assert "tokens.sqlite3" not in modes_in(path.parent)  # an empty one would know nobody
    await store.close()


async def test_a_row_that_is_no_token_is_told(store: SqliteTokenStore, path: Path) -> None:
    with connected(path) as other:
        other.execute("UPDATE tokens SET service_class = 'urgent'")
    assert await failure_of(store) == "corrupted"


async def test_one_of_a_newer_headway_is_left_alone(store: SqliteTokenStore, path: Path) -> None:
    assert await store.list() == [stored(1)]
    with connected(path) as other:
        other.execute("PRAGMA user_version = 2")
    newer = SqliteTokenStore(path)
    assert await failure_of(newer) == "newer"
    await newer.close()


async def test_one_that_can_only_be_read_is_read(store: SqliteTokenStore, path: Path) -> None:
    def read_only(path: Path, timeout_s: float) -> sqlite3.Connection:
        uri = f"{path.as_uri()}?mode=ro"
        return sqlite3.connect(
            uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
        )

    reader = SqliteTokenStore(path, connect=read_only)
    assert await reader.find_by_digest(stored(1).digest) == stored(1)
    with pytest.raises(StoreFailed) as caught:
        await reader.create(stored(2))
    assert caught.value.failure == "read_only"
    await reader.close()
    assert await store.list() == [stored(1)]


async def test_a_disk_that_is_full_is_told(store: SqliteTokenStore, path: Path) -> None:
    def without_room(path: Path, timeout_s: float) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    full = SqliteTokenStore(path, connect=without_room)
    with pytest.raises(StoreFailed) as caught:
        await full.put_standing("tok_000000000001", bytes(20_000), NOW_S)
    assert caught.value.failure == "full"
    await full.close()
    assert await store.get_standing("tok_000000000001") is None


async def test_only_standings_may_be_lost_with_the_power(store: SqliteTokenStore) -> None:
    statements: list[str] = []

    def traced(path: Path, timeout_s: float) -> sqlite3.Connection:
        connection = connect(path, timeout_s)
        connection.set_trace_callback(statements.append)
        return connection

    traced_store = SqliteTokenStore(Path(store.place), connect=traced)
    await traced_store.put_standing("tok_000000000001", b"{}", NOW_S)
    await traced_store.revoke(stored(1).token_id, NOW_S)
    await traced_store.close()
    kinds = [statement.split("(")[0].split(" tokens ")[0] for statement in statements]
    assert kinds.index("PRAGMA synchronous = NORMAL") < kinds.index("PRAGMA synchronous = FULL")
    assert kinds.index("PRAGMA synchronous = FULL") < kinds.index("UPDATE")


async def test_the_event_loop_runs_on_while_the_store_waits(store: SqliteTokenStore, path: Path) -> None:
    waiting = SqliteTokenStore(path, timeout_s=60)
    await waiting.list()
    with connected(path) as writer:
        writer.execute("BEGIN IMMEDIATE")
        revoking = asyncio.create_task(waiting.revoke(stored(1).token_id, NOW_S))
        assert await store.list() == [stored(1)]  # another thread's answer comes through the loop
        assert not revoking.done()
        writer.execute("ROLLBACK")
    assert await revoking == stored(1, revoked_s=NOW_S)
    await waiting.close()


def test_processes_that_make_one_at_once_share_one(path: Path) -> None:
    code = (
        "import asyncio, pathlib, sys\n"
        "from headway.access.sqlite_store import SqliteTokenStore\n"
        "from support.memory_tokens import stored\n"
        "async def main():\n"
        "    store = SqliteTokenStore(pathlib.Path(sys.argv[1]), timeout_s=30)\n"
        "    for number in range(20):\n"
        "        await store.create(stored(int(sys.argv[2]) * 100 + number))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    tests = str(Path(__file__).parent.parent)
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{code}", str(path), n]
        )
        for n in ("1", "2", "3")
    ]
    assert [maker.wait() for maker in makers] == [0, 0, 0]
    with connected(path) as reader:
        assert reader.execute("SELECT count(*) FROM tokens").fetchone() == (60,)
