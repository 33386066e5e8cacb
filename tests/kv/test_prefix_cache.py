from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.kv.blocks import KvBlocks
from headway.kv.prefix_cache import PrefixChain


def compute(kv: KvBlocks, tokens: list[int], salt: str = "") -> "tuple[array[int], PrefixChain, int]":
    """Do what the engine does for one sequence; return its table, chain and how many blocks the cache gave."""
    ids = array("i", tokens)
    chain = kv.new_chain(salt, 0)
    chain.extend(ids, len(ids))
    table = array("i")
    shared = kv.match(chain, len(ids))
    kv.open_table(table, shared)
    kv.grow(table, len(ids))
    kv.commit(table, chain, len(shared), len(ids) // kv.pool.block_size)
    return table, chain, len(shared)


def test_a_second_sequence_starts_from_the_full_blocks_of_the_first() -> None:
    kv = KvBlocks(16, 4)
    first, _, _ = compute(kv, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    second, _, shared = compute(kv, [1, 2, 3, 4, 5, 6, 7, 8, 10])
    assert shared == 2
    assert second[:2] == first[:2]
    assert second[2] != first[2]
    kv.check([first, second])


def test_blocks_are_kept_after_their_sequence_ends() -> None:
    kv = KvBlocks(16, 4)
    table, _, _ = compute(kv, list(range(9)))
    kv.pool.release_table(table)
    assert kv.pool.num_available == 16
    assert compute(kv, list(range(9)))[2] == 2


def test_the_last_token_is_always_left_to_compute() -> None:
    kv = KvBlocks(16, 4)
    first, _, _ = compute(kv, list(range(8)))
    second, _, shared = compute(kv, list(range(8)))
    assert shared == 1
    assert second == first  # the block computed again gives way to the one that was there
    kv.check([first, second])


def test_a_block_is_found_only_behind_its_own_beginning() -> None:
    kv = KvBlocks(16, 4)
    compute(kv, [1, 2, 3, 4, 5, 6, 7, 8])
    assert compute(kv, [9, 9, 9, 9, 5, 6, 7, 8, 0])[2] == 0


@pytest.mark.parametrize(("salt", "adapter_id"), [("tenant", 0), ("", 1)])
def test_salt_and_adapter_part_the_cache(salt: str, adapter_id: int) -> None:
    kv = KvBlocks(16, 4)
    compute(kv, list(range(9)))
    chain = kv.new_chain(salt, adapter_id)
    chain.extend(array("i", range(9)), 9)
    assert kv.match(chain, 9) == []


def test_an_evicted_block_is_no_longer_found() -> None:
    kv = KvBlocks(2, 4)
    table, chain, _ = compute(kv, list(range(5)))
    kv.pool.release_table(table)
    assert len(kv.match(chain, 5)) == 1
    other, _, _ = compute(kv, list(range(20, 28)))
    assert kv.match(chain, 5) == []
    kv.check([other])


def test_the_tail_is_evicted_before_its_beginning() -> None:
    kv = KvBlocks(3, 4)
    table, _, _ = compute(kv, list(range(12)))
    kv.pool.release_table(table)
    kv.pool.release(kv.pool.allocate_nowait(1)[0])
    chain = kv.new_chain("", 0)
    chain.extend(array("i", range(12)), 12)
    assert len(kv.cache.match(chain, 3)) == 2
    kv.check()


def test_only_an_empty_table_can_start_from_shared_blocks() -> None:
    kv = KvBlocks(4, 4)
    table, _, _ = compute(kv, list(range(5)))
    with pytest.raises(ValueError, match="empty"):
        kv.open_table(table, [table[0]])


def test_a_chain_is_cut_with_its_sequence() -> None:
    chain = KvBlocks(4, 4).new_chain("", 0)
    chain.extend(array("i", range(12)), 12)
    twin = chain.copy()
    chain.truncate(7)
    assert len(chain.keys) == 1
    assert len(twin.keys) == 3


PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=12)


@given(prompts=PROMPTS, digest_bits=st.integers(0, 2), keep=st.integers(0, 3))
def test_colliding_digests_cost_hits_but_never_give_a_wrong_block(
    prompts: list[list[int]], digest_bits: int, keep: int
) -> None:
    def weak(parent: bytes, tokens: bytes) -> bytes:
        return bytes([sum(parent + tokens) % (1 << digest_bits)])

    kv = KvBlocks(12, 2, weak)
    content: dict[int, tuple[int, ...]] = {}  # block → everything up to its end, noted when it was computed
    tables: list[array[int]] = []
    for prompt in prompts:
        ids = array("i", prompt)
        chain = kv.new_chain("", 0)
        chain.extend(ids, len(ids))
        shared = kv.match(chain, len(ids))
        for index, block in enumerate(shared):
            assert content[block] == tuple(prompt[: 2 * index + 2])
        table: array[int] = array("i")
        kv.open_table(table, shared)
        kv.grow(table, len(ids))
        for index in range(len(shared), len(table)):
            content[table[index]] = tuple(prompt[: 2 * index + 2])
        for index in range(len(shared), len(ids) // 2):
            if not kv.commit(table, chain, index, index + 1):
                break
            assert content[table[index]] == tuple(prompt[: 2 * index + 2])
        tables.append(table)
        kv.check(tables)
        while len(tables) > keep and (len(tables) > 1 or kv.pool.num_available < 5):
            kv.pool.release_table(tables.pop(0))
        while tables and kv.pool.num_available < 5:
            kv.pool.release_table(tables.pop(0))
        kv.check(tables)
