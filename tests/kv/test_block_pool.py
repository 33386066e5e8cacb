from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.kv.block_pool import BlockPool, BlockStatistics, OutOfBlocks


def test_allocates_each_block_once() -> None:
    pool = BlockPool(4, 16)
    assert sorted(pool.allocate_nowait(4)) == [0, 1, 2, 3]
    pool.check([array("i", [0, 1, 2, 3])])


def test_an_allocation_that_does_not_fit_takes_nothing() -> None:
    pool = BlockPool(4, 16)
    pool.allocate_nowait(2)
    with pytest.raises(OutOfBlocks, match="3 blocks asked for, 2 available"):
        pool.allocate_nowait(3)
    assert pool.num_available == 2


def test_a_shared_block_is_free_only_after_its_last_release() -> None:
    pool = BlockPool(1, 16)
    (block,) = pool.allocate_nowait(1)
    pool.retain(block)
    pool.release(block)
    assert pool.num_available == 0
    pool.release(block)
    assert pool.num_available == 1


def test_cached_blocks_are_evicted_least_recently_released_first() -> None:
    evicted: list[int] = []
    pool = BlockPool(3, 16, on_evict=evicted.append)
    first, second, third = pool.allocate_nowait(3)
    for block in (first, second, third):
        pool.mark_cached(block)
    for block in (second, first, third):
        pool.release(block)
    pool.retain(second)
    pool.release(second)  # used again, so it is now the most recent
    assert pool.allocate_nowait(2) == [first, third]
    assert evicted == [first, third]
    pool.check()


def test_free_blocks_are_taken_before_cached_ones() -> None:
    evicted: list[int] = []
    pool = BlockPool(2, 16, on_evict=evicted.append)
    cached, plain = pool.allocate_nowait(2)
    pool.mark_cached(cached)
    pool.release(cached)
    pool.release(plain)
    assert pool.allocate_nowait(1) == [plain]
    assert not evicted


def test_releasing_a_table_evicts_its_tail_first() -> None:
    pool = BlockPool(3, 16)
    table = array("i", pool.allocate_nowait(3))
    first, second, third = table
    for block in table:
        pool.mark_cached(block)
    pool.release_table(table)
    assert not table
    assert pool.allocate_nowait(3) == [third, second, first]


@pytest.mark.parametrize("misuse", ["retain", "release", "mark_cached"])
def test_a_free_block_cannot_be_used(misuse: str) -> None:
    pool = BlockPool(1, 16)
    with pytest.raises(ValueError, match="block 0"):
        getattr(pool, misuse)(0)


@pytest.mark.parametrize(("num_tokens", "kept"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_truncate_keeps_the_blocks_that_hold_the_tokens(num_tokens: int, kept: int) -> None:
    pool = BlockPool(4, 16)
    table = array("i", pool.allocate_nowait(2))
    pool.truncate(table, num_tokens)
    assert len(table) == kept
    pool.check([table])


def test_truncate_never_cuts_into_a_shared_block() -> None:
    pool = BlockPool(4, 16)
    table = array("i", pool.allocate_nowait(2))
    pool.mark_cached(table[0])
    with pytest.raises(ValueError, match="cannot be cut at token 15"):
        pool.truncate(table, 15)
    pool.truncate(table, 16)
    pool.check([table])


def test_truncate_cannot_lengthen() -> None:
    pool = BlockPool(4, 16)
    with pytest.raises(ValueError, match="do not fit"):
        pool.truncate(array("i", pool.allocate_nowait(1)), 17)


def test_statistics_add_up() -> None:
    pool = BlockPool(5, 16)
    cached, _used = pool.allocate_nowait(2)
    pool.mark_cached(cached)
    pool.release(cached)
    assert pool.statistics() == BlockStatistics(num_blocks=5, num_free=3, num_used=1, num_evictable=1)


def test_check_notices_a_table_that_holds_a_released_block() -> None:
    pool = BlockPool(2, 16)
    table = array("i", pool.allocate_nowait(1))
    pool.release(table[0])
    with pytest.raises(AssertionError, match="references differ"):
        pool.check([table])


def test_a_pool_needs_blocks() -> None:
    with pytest.raises(ValueError, match="0 blocks"):
        BlockPool(0, 16)


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "share", "cache", "cut", "close"]), st.integers(0, 7)), max_size=60
    )
)
def test_any_sequence_of_moves_keeps_every_block_accounted_for(moves: list[tuple[str, int]]) -> None:
    evicted: set[int] = set()
    pool = BlockPool(8, 4, on_evict=evicted.add)
    tables: list[array[int]] = []
    for move, number in moves:
        if move == "open" and pool.num_available >= number:
            tables.append(array("i", pool.allocate_nowait(number)))
        elif tables:
            table = tables[number % len(tables)]
            if move == "share":
                for block in table:
                    pool.retain(block)
                tables.append(array("i", table))
            elif move == "cache" and table:
                pool.mark_cached(table[0])
            elif move == "cut":
                pool.truncate(table, 4 * (len(table) // 2))
            elif move == "close":
                pool.release_table(table)
                tables.remove(table)
        pool.check(tables)
    assert not any(block in table and not pool.references(block) for block in evicted for table in tables)


def cached(pool: BlockPool, count: int) -> list[int]:
    """Return blocks that are used and cached."""
    blocks = pool.allocate_nowait(count)
    for block in blocks:
        pool.mark_cached(block)
    return blocks


def test_kept_blocks_are_evicted_last_and_in_their_own_order() -> None:
    evicted: list[int] = []
    pool = BlockPool(4, 16, on_evict=evicted.append)
    blocks = cached(pool, 4)
    for block in blocks[:2]:
        pool.keep(block)
    for block in blocks:
        pool.release(block)
    assert pool.num_available == 4
    pool.allocate_nowait(4)
    assert evicted == [blocks[2], blocks[3], blocks[0], blocks[1]]
    pool.check()


def test_no_more_than_half_of_the_pool_is_kept() -> None:
    evicted: list[int] = []
    pool = BlockPool(6, 16, on_evict=evicted.append)
    blocks = cached(pool, 6)
    for block in blocks[:5]:
        pool.keep(block)
    for block in blocks:
        pool.release(block)
        pool.check()
    pool.allocate_nowait(6)
    assert evicted == [blocks[0], blocks[1], blocks[5], blocks[2], blocks[3], blocks[4]]


def test_a_block_that_is_kept_no_more_is_as_good_as_any() -> None:
    evicted: list[int] = []
    pool = BlockPool(4, 16, on_evict=evicted.append)
    kept, other, used, _ = cached(pool, 4)
    pool.keep(kept)
    pool.keep(used)
    pool.release(other)
    pool.release(kept)
    pool.unkeep(kept)
    pool.unkeep(used)
    pool.release(used)
    pool.allocate_nowait(3)
    assert evicted == [other, kept, used]


def test_a_kept_block_stays_kept_when_it_is_used_again() -> None:
    evicted: list[int] = []
    pool = BlockPool(2, 16, on_evict=evicted.append)
    kept, other = cached(pool, 2)
    pool.keep(kept)
    pool.release(kept)
    pool.retain(kept)
    pool.release(kept)
    pool.release(other)
    pool.allocate_nowait(2)
    assert evicted == [other, kept]
    pool.check([array("i", [kept]), array("i", [other])])


def test_only_a_used_and_cached_block_can_be_kept_and_only_an_evictable_one_freed() -> None:
    pool = BlockPool(3, 16)
    plain, used = pool.allocate_nowait(2)
    pool.mark_cached(used)
    for block in (plain, 2):
        with pytest.raises(ValueError, match="cannot be kept"):
            pool.keep(block)
        with pytest.raises(ValueError, match="is not evictable"):
            pool.free(block)
    with pytest.raises(ValueError, match="is not evictable"):
        pool.free(used)
    pool.keep(used)
    pool.release(used)
    pool.free(used)
    assert pool.statistics() == BlockStatistics(num_blocks=3, num_free=2, num_used=1, num_evictable=0)
    pool.check()
