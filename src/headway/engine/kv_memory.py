"""The KV of an engine's sequences: blocks, what left them for memory or disk, and the conversations they belong to.

It joins `kv.blocks`, `kv.tiers`, `restores` and `sessions` for the engine, which tells it when a sequence starts and lets
go. It plans nothing and knows no request but by its sequences.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from headway.core.clock import NS_PER_S, Clock
from headway.core.config import SchedulerConfig
from headway.core.messages import EngineInfo, EngineStats
from headway.engine.restores import Restores
from headway.engine.sequence import Sequence
from headway.engine.sessions import Sessions, SessionState
from headway.engine.view import Admission
from headway.kv.blocks import KvBlocks
from headway.kv.tiers import Tier, Tiers
from headway.runner.step import Runner

BOUND_TOKENS = 8192
"""For how many tokens unused blocks are given memory ahead: 190 MB of SmolLM2's, 1 GB of an 8 B model's."""
MAX_AHEAD_PER_STEP = 16
"""Blocks kept before they must make room, in one step: 5 ms of SmolLM2's (docs/log.md), a chunk of a prompt's worth."""


class KvMemory:
    """Owns where every sequence's KV is.

    tiers                  None = what leaves the blocks is gone
    prefill_tokens_per_s   how fast prompts are computed; None = not known yet
    """

    def __init__(
        self,
        runner: Runner,
        info: EngineInfo,
        limits: SchedulerConfig,
        clock: Clock,
        tiers: Tiers | None,
        prefill_tokens_per_s: Callable[[], float | None],
    ) -> None:
        self.blocks = KvBlocks(info.num_blocks, info.block_size, on_evict=self._evict)
        self._runner = runner
        self._clock = clock
        self._tiers = tiers if tiers else None
        self._offered: set[bytes] = set()  # in this step, each with all that comes before it
        self._num_ahead = 0  # blocks kept in this step that stay in the cache
        self._num_bound = 0  # blocks that have memory, all those ever used aside
        self._bound_ahead = self.blocks.pool.blocks_for(BOUND_TOKENS)
        self._restores = None
        if self._tiers is not None:
            block_bytes = len(runner.read_block(0))
            self._restores = Restores(self._tiers, runner.write_block, block_bytes, prefill_tokens_per_s)
        self.sessions = Sessions(
            self.blocks,
            round(limits.session_idle_s * NS_PER_S),
            None if self._tiers is None else self._tiers.drop,
        )

    @property
    def must_wait(self) -> bool:
        """Whether blocks are on their way back, and none has come that `advance` would write."""
        return self._restores is not None and self._restores.must_wait

    def bind_next(self) -> bool:
        """Give a block memory that soon will be used for the first time; return False where enough have theirs.

        The system clears memory when it is first written, a huge page at a time, and where it must ask a hypervisor for it
        that takes as long as computing a quarter of the prompt (docs/log.md).
        """
        pool = self.blocks.pool
        block = max(self._num_bound, pool.num_ever_used)
        if block >= min(pool.num_blocks, pool.num_ever_used + self._bound_ahead):
            return False
        self._runner.bind_block(block)
        self._num_bound = block + 1
        return True

    def restorable(self, sequence: Sequence, num_shared: int) -> int:
        """Return how many blocks behind the first `num_shared` are quicker to bring back than to compute."""
        return 0 if self._restores is None else self._restores.num_restorable(sequence, num_shared)

    def open(self, admission: Admission[Sequence]) -> bool:
        """Begin a sequence's table as planned; return whether blocks are on their way back to it."""
        sequence, shared, num_restored = admission
        self.blocks.open_table(sequence.table, shared)
        if self._restores is None or not num_restored:
            return False
        return self._restores.begin(sequence, len(shared), num_restored)

    def advance(self) -> tuple[int, list[tuple[Sequence, int]]]:
        """Begin a step: write blocks that came back. Return how many, and the sequences that got all that will come."""
        if self._restores is None or self._tiers is None:
            return 0, []
        self._offered.clear()
        self._num_ahead = 0
        self._tiers.note_used()
        return self._restores.advance()

    def let_go(self, sequence: Sequence) -> None:
        """Take a sequence's blocks, whatever it was doing; what can be shared stays as long as there is room."""
        if self._restores is not None:
            self._restores.cancel(sequence)
        self.sessions.hold(sequence)
        self.blocks.pool.release_table(sequence.table)

    def count(self, stats: EngineStats) -> EngineStats:
        """Return `stats` with what is to be told of tiers and conversations."""
        sessions = self.sessions
        stats = msgspec.structs.replace(
            stats,
            num_sessions_active=sessions.num_in(SessionState.ACTIVE),
            num_sessions_idle=sessions.num_in(SessionState.IDLE),
            num_sessions_parked=sessions.num_in(SessionState.PARKED),
        )
        if self._tiers is None:
            return stats
        host, disk = self._tiers.traffic[Tier.HOST], self._tiers.traffic[Tier.DISK]
        return msgspec.structs.replace(
            stats,
            host_kv_bytes=self._tiers.num_bytes(Tier.HOST),
            disk_kv_bytes=self._tiers.num_bytes(Tier.DISK),
            host_offloaded_blocks_total=host.offloaded_blocks,
            host_offloaded_bytes_total=host.offloaded_bytes,
            host_restored_blocks_total=host.restored_blocks,
            host_restored_bytes_total=host.restored_bytes,
            disk_offloaded_blocks_total=disk.offloaded_blocks,
            disk_offloaded_bytes_total=disk.offloaded_bytes,
            disk_restored_blocks_total=disk.restored_blocks,
            disk_restored_bytes_total=disk.restored_bytes,
            lost_kv_blocks_total=self._tiers.num_lost,
        )

    def check(self, running: list[Sequence]) -> None:
        """Raise AssertionError unless everything accounts for everything else. For tests."""
        self.blocks.check(sequence.table for sequence in running)
        self.sessions.check()
        if self._restores is not None:
            self._restores.check(running)

    def _evict(self, block: int) -> None:
        if self._tiers is not None:
            self._offload(self._tiers, block)
        self.sessions.on_evict(self.blocks.cache.digest(block))

    def _offload(self, tiers: Tiers, evicted: int) -> None:
        """Keep a block that is evicted, and what comes before it, which stays: without it, it would be worth nothing.

        The first block comes last, so that it is the one used last. What is over the bound follows in a later step.
        """
        cache, read = self.blocks.cache, self._runner.read_block
        place: int | None = evicted
        while place is not None:
            block, place = place, cache.parent(place)
            digest = cache.digest(block)
            if digest in self._offered:
                return
            if digest not in tiers:
                if block != evicted and self._num_ahead >= MAX_AHEAD_PER_STEP:
                    return
                self._num_ahead += block != evicted
            self._offered.add(digest)
            tiers.offload(digest, partial(cache.content, block), partial(read, block))
