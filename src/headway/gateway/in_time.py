"""Awaits with a deadline, and sets no timer for what does not wait at all, which is nearly everything a connection does.

Setting a timer and taking it back costs as much as sending an event.
"""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def in_time(awaitable: Awaitable[T], timeout_s: float) -> T:
    """Return what `awaitable` gives; raises TimeoutError if it still waits after `timeout_s`, and has cancelled it then."""
    running = awaitable.__await__()
    try:
        waits_for = next(running)
    except StopIteration as ended:
        result: T = ended.value
        return result
    async with asyncio.timeout(timeout_s):
        return await _Begun(waits_for, running)


class _Begun(Generator[Any, Any, T]):
    """What is left of an awaitable that was begun: first what it waits for already, then all that follows."""

    def __init__(self, waits_for: object, rest: Generator[Any, Any, T]) -> None:
        self._waits_for = waits_for
        self._is_told = False
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: object, /) -> object:
        """See generators."""
        if self._is_told:
            return self._rest.send(value)
        self._is_told = True
        return self._waits_for

    def throw(self, *error: Any) -> object:
        """See generators: a cancellation comes by it."""
        return self._rest.throw(*error)
