"""Reads a request's body, then watches for the client to leave: the ASGI side that only `receive` knows.

Servers report a lost connection as `http.disconnect` (ASGI HTTP specification); a middleware that wraps `receive`
lazily would hide it, so nothing stands between.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from starlette.types import Receive, Scope

from headway.core.errors import PayloadTooLarge, RequestTimeout
from headway.gateway.body_budget import Body
from headway.gateway.config import GatewayConfig
from headway.gateway.in_time import in_time

T = TypeVar("T")


class ClientGone(Exception):
    """The client left; there is nobody to answer."""


async def read_body(scope: Scope, receive: Receive, config: GatewayConfig, budget: Body) -> bytes:
    """Return the whole body, counted in `budget` as it comes.

    Raises PayloadTooLarge as soon as it is known to be too large, RequestTimeout when it comes too slowly, QueueFull when
    bodies take too much memory together, ClientGone.
    """
    max_bytes = config.max_body_bytes
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    num_bytes = 0
    now_s = asyncio.get_running_loop().time
    start_s = now_s()
    try:
        while True:
            due_s = start_s + config.body_grace_s + num_bytes / config.min_body_bytes_per_s
            message = await in_time(receive(), due_s - now_s())
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            num_bytes += len(part)
            if num_bytes > max_bytes:
                raise _too_large(max_bytes)
            budget.grow(len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
    except TimeoutError:
        raise RequestTimeout(
            f"The request's body came too slowly ({num_bytes} bytes so far); send it again, faster."
        ) from None


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request's body exceeds the limit of {max_bytes} bytes; send less.")


class ClientWatch:
    """Watches one client while its request is served; start it only when the body has been read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._callbacks: list[Callable[[], object]] = []
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    async def __aenter__(self) -> "ClientWatch":
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()  # which it is by the time that anybody else could ask `receive`
        # The ended task refers to this watch, and callbacks to whole answers: left in a circle, both wait for the collector.
        self._task = None
        self._callbacks.clear()

    def on_gone(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, when the client leaves or now if it has left."""
        if self.gone:
            callback()
        else:
            self._callbacks.append(callback)

    async def race(self, future: "asyncio.Future[T]") -> T:
        """Await `future`; cancel it and raise ClientGone if the client leaves first."""
        self.on_gone(future.cancel)
        try:
            return await future
        except asyncio.CancelledError:
            if self.gone:
                raise ClientGone from None
            raise

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        for callback in self._callbacks:
            callback()
