"""Further KV caches on weights that are loaded already."""

from dataclasses import replace

from headway import _native
from headway.core.config import KvFormat
from headway.runner.native_runner import NativeRunner


def with_cache(runner: NativeRunner, *, kv: KvFormat, block_size: int, num_blocks: int) -> NativeRunner:
    """Return a runner on the same weights with an empty KV cache of its own; its fingerprint stays the first one's."""
    cache = _native.KvCache(runner.model, num_blocks=num_blocks, block_size=block_size, dtype=kv)
    return NativeRunner(cache, replace(runner.info, block_size=block_size, num_blocks=num_blocks))
