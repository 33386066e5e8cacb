"""Whether a remote engine is there: asks at the start, now and then, and at once when something suggests that it is not.

After a failure it asks again after a back-off (`lifecycle.Backoff`) until the server answers one token as it should. It
knows no requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headway.core.clock import NS_PER_S, Clock
from headway.core.errors import ConfigError, HeadwayError, UpstreamTimeout
from headway.engine.lifecycle import Backoff
from headway.engine.remote_config import RemoteConfig, RemoteText
from headway.engine.remote_http import Found, RemoteHttp

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]


class RemoteWatch:
    """Asks one server until it is cancelled.

    found     is called when the server has become ready
    lost      is called, with a sentence, when it no longer is; and after each vain attempt, for the next one's time
    """

    def __init__(
        self,
        http: RemoteHttp,
        config: RemoteConfig,
        text: RemoteText,
        clock: Clock,
        sleep: Sleep,
        *,
        found: Callable[[Found], None],
        lost: Callable[[str], None],
    ) -> None:
        self._http = http
        self._config = config
        self._text = text
        self._clock = clock
        self._sleep = sleep
        self._found = found
        self._lost = lost
        self._suspicion = asyncio.Event()
        self.sure = asyncio.Event()
        """The server was there when it was last asked, and nothing has suggested otherwise since."""
        self._backoff = Backoff()
        self._ready_at_ns: int | None = None
        self.heard_ns = 0
        """When the server last said anything, to whomever."""
        self.retry_at_ns = 0
        """When it is asked again, while it is not there."""

    def suspect(self) -> None:
        """Something suggests that the server has gone."""
        self.sure.clear()
        self._suspicion.set()

    async def attempt(self) -> HeadwayError | None:
        """Ask whether the server is there; return why it is not."""
        self._suspicion.clear()
        try:
            found = await self._http.find(self._text)
        except HeadwayError as error:
            self._fail(error)
            return error
        self._ready_at_ns = self.heard_ns = self._clock.now_ns()
        self.sure.set()
        self._found(found)
        return None

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            if self._ready_at_ns is None:
                await self._sleep(self._backoff.delay_s)
                await self.attempt()
            else:
                await self._wait()
                await self._check()

    async def _wait(self) -> None:
        """Wait until it is time to ask, or something is suspected."""
        tasks = {
            asyncio.ensure_future(self._sleep(self._config.poll_s)),
            asyncio.ensure_future(self._suspicion.wait()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        self._suspicion.clear()

    async def _check(self) -> None:
        asked_ns = self._clock.now_ns()
        try:
            await self._http.ask_models()
        except UpstreamTimeout as error:
            if self.heard_ns < asked_ns:
                self._fail(error)
                return
            # A busy server may be slow to say so: answers that go on are proof enough.
        except HeadwayError as error:
            self._fail(error)
            return
        else:
            self.heard_ns = self._clock.now_ns()
        if not self._suspicion.is_set():  # else something was suspected meanwhile, and it is asked again
            self.sure.set()

    def _fail(self, error: HeadwayError) -> None:
        now_ns = self._clock.now_ns()
        uptime_s = 0.0 if self._ready_at_ns is None else (now_ns - self._ready_at_ns) / NS_PER_S
        self._ready_at_ns = None
        self.sure.clear()
        self._backoff = self._backoff.after_end(uptime_s)
        self.retry_at_ns = now_ns + round(self._backoff.delay_s * NS_PER_S)
        level = logging.ERROR if isinstance(error, ConfigError) else logging.WARNING
        logger.log(
            level,
            "engine %s: %s; it is asked again %s",
            self._config.url,
            _for_operators(error),
            f"in {self._backoff.delay_s:g} s" if self._backoff.delay_s else "at once",
        )
        self._lost(str(error))


def _for_operators(error: HeadwayError) -> str:
    """Return what is said to callers without what they are to do, and without the stop."""
    return str(error).partition("; send ")[0].rstrip(".")
