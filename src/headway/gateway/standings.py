"""Keeps how slowed callers stand where `headway token show` finds it, now and then, beside the requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from headway.access.token_store import StoreFailed
from headway.core.caller import Caller
from headway.core.clock import NS_PER_S, Clock, rfc3339
from headway.flow.limits import Limits

logger = logging.getLogger("headway.gateway")

EVERY_NS: Final = 5 * NS_PER_S
MAX_NOTED: Final = 1_000
"""Callers whose last time is remembered; beyond, all are forgotten, and written once more."""
MAX_WRITING: Final = 16
"""Standings on their way to the store, where lookups of callers wait behind them; beyond, others wait."""
MAX_WAITING: Final = 1_000
"""Callers whose standing is to be written once more; beyond, the next call's must do."""

Put = Callable[[str, bytes, int], Awaitable[None]]
"""Keeps bytes for a token's id at a second since 1970: `access.token_store.TokenStore.put_standing`."""


class Standings:
    """Writes in tasks of its own, those that are not done yet in `tasks`. `now_s`: wall-clock seconds.

    What comes too soon is not lost: how a caller stood after the last call of a burst is what explains the burst.
    """

    def __init__(self, put: Put, clock: Clock, now_s: Callable[[], float]) -> None:
        self._put = put
        self._clock = clock
        self._now_s = now_s
        self._noted_ns: dict[str, int] = {}
        self._waiting: dict[str, tuple[Caller, Limits]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._failed: str | None = None  # how the store did, the last time

    def note(self, caller: Caller, limits: Limits) -> None:
        """Have a caller's standing kept: now, or where it was within the last seconds, when they are over."""
        if not caller.token_id:
            return
        now_ns = self._clock.now_ns()
        last_ns = self._noted_ns.get(caller.token_id)
        if len(self.tasks) >= MAX_WRITING or (last_ns is not None and now_ns - last_ns < EVERY_NS):
            self._wait(caller, limits)
            return
        if len(self._noted_ns) >= MAX_NOTED:
            self._noted_ns.clear()
        self._noted_ns[caller.token_id] = now_ns
        self._waiting.pop(caller.token_id, None)
        task = asyncio.create_task(self._keep(caller, limits))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def note_waiting(self) -> None:
        """Have those kept that waited long enough."""
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for caller, limits in waiting.values():
            self.note(caller, limits)

    async def close(self) -> None:
        """Give up what is being written, or waits for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = tuple(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wait(self, caller: Caller, limits: Limits) -> None:
        if len(self._waiting) >= MAX_WAITING and caller.token_id not in self._waiting:
            return
        self._waiting[caller.token_id] = (caller, limits)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_NS / NS_PER_S, self.note_waiting)

    async def _keep(self, caller: Caller, limits: Limits) -> None:
        """Write a standing. Where that fails operators see less, and callers nothing."""
        try:
            shown = await limits.show(caller)
            now_s = int(self._now_s())
            standing = {"as_of": rfc3339(now_s), **msgspec.to_builtins(shown)}
            await self._put(caller.token_id, msgspec.json.encode(standing), now_s)
        except StoreFailed as error:
            if self._failed != error.failure:
                logger.warning("how callers stand is not kept: %s", error)
            self._failed = error.failure
        except Exception:
            logger.warning("a caller's standing could not be kept", exc_info=True)
        else:
            self._failed = None
