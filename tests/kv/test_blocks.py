"""Pool and prefix cache together: what evicted blocks stood for, and dropping what nobody needs."""

from array import array

from headway.kv.blocks import KvBlocks
from headway.kv.prefix_cache import PrefixChain

SIZE = 4


def filled(kv: KvBlocks, tokens: "array[int]", salt: str = "") -> "tuple[PrefixChain, array[int]]":
    """Return chain and table of a sequence whose full blocks are shared."""
    chain = kv.new_chain(salt, 0)
    chain.extend(tokens, len(tokens))
    table = array("i")
    shared = kv.match(chain, len(tokens) + 1)
    kv.open_table(table, shared)
    kv.grow(table, len(tokens))
    assert kv.commit(table, chain, len(shared), len(chain.keys))
    return chain, table


def test_an_evicted_block_can_be_asked_what_it_stands_for() -> None:
    seen = []

    def on_evict(block: int) -> None:
        seen.append((kv.cache.digest(block), *kv.cache.content(block)))

    kv = KvBlocks(3, SIZE, on_evict=on_evict)
    tokens = array("i", range(12))
    chain, table = filled(kv, tokens, "tenant")
    first, second, third = table
    assert [kv.cache.parent(block) for block in table] == [None, first, second]
    assert [kv.cache.has_children(block) for block in (first, second, third)] == [True, True, False]
    kv.pool.release_table(table)
    kv.pool.allocate_nowait(2)
    root = chain.root_bytes
    assert seen == [
        (chain.keys[2].digest, root, tokens.tobytes()),
        (chain.keys[1].digest, root, tokens[:8].tobytes()),
    ]


def test_dropping_frees_a_prefix_from_its_end_up_to_what_others_need() -> None:
    kv = KvBlocks(8, SIZE)
    ours, table = filled(kv, array("i", range(16)))
    kv.pool.release_table(table)
    _, other = filled(kv, array("i", [*range(8), 50, 51, 52, 53]))
    kv.pool.release_table(other)
    digests = [key.digest for key in ours.keys]
    kv.drop(reversed(digests))
    kv.check([])
    assert [kv.cache.find(digest) is not None for digest in digests] == [True, True, False, False]
    statistics = kv.pool.statistics()
    assert (statistics.num_free, statistics.num_evictable) == (5, 3)


def test_dropping_leaves_what_is_used() -> None:
    kv = KvBlocks(8, SIZE)
    chain, table = filled(kv, array("i", range(8)))
    kv.drop([key.digest for key in reversed(chain.keys)] + [b"unknown"])
    kv.check([table])
    assert len(kv.cache) == 2
