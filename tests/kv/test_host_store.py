"""Blocks in memory: the least recently used go, the budget holds."""

from headway.kv.host_store import HostStore
from headway.kv.stored_block import StoredBlock, Wanted, store


def block(name: str, size: int = 6) -> StoredBlock:
    return store(name.encode(), b"root", name.encode() * 4, b"x" * size)


def wanted(name: str) -> Wanted:
    return Wanted(name.encode(), b"root", name.encode() * 4, 4)


def test_the_least_recently_used_go_first() -> None:
    host = HostStore(30)
    assert [host.put(block(name)) for name in "abc"] == [True] * 3
    assert host.get(wanted("a")) == block("a")
    host.put(block("d"))
    assert b"b" not in host
    host.touch(b"c")
    host.put(block("e"))
    assert host.num_bytes == 30
    assert [name for name in "abcde" if name.encode() in host] == ["c", "d", "e"]


def test_what_exceeds_the_budget_alone_moves_nobody() -> None:
    host = HostStore(30)
    host.put(block("a"))
    assert not host.put(block("z", 27))
    assert b"a" in host
    assert b"z" not in host


def test_one_large_block_moves_several() -> None:
    host = HostStore(30)
    for name in "abc":
        host.put(block(name))
    host.put(block("z", 16))
    assert [name for name in "abcz" if name.encode() in host] == ["c", "z"]
    assert host.num_bytes == 30


def test_another_content_under_the_same_digest_is_a_miss() -> None:
    host = HostStore(30)
    host.put(block("a"))
    assert host.get(Wanted(b"a", b"root", b"zzzz", 4)) is None


def test_dropping_gives_the_bytes_back_once() -> None:
    host = HostStore(30)
    host.put(block("a"))
    host.put(block("a"))
    assert host.num_bytes == 10
    host.drop(b"a")
    host.drop(b"a")
    assert (host.num_bytes, len(host), host.get(wanted("a"))) == (0, 0, None)
