"""Reads the event streams of several engine requests as one."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from headway.engine.client import RequestEvent

Batch = tuple[RequestEvent, ...]
"""What one step did for one request."""


async def merge(sources: Sequence[AsyncIterator[Batch]]) -> AsyncIterator[tuple[int, Batch]]:
    """Yield (index of the source, batch) as they come; bounded by `max_tokens` of each request, as a batch has tokens."""
    if len(sources) == 1:
        async for batch in sources[0]:
            yield 0, batch
        return
    queue: asyncio.Queue[tuple[int, Batch] | BaseException | None] = asyncio.Queue()

    async def pump(index: int, source: AsyncIterator[Batch]) -> None:
        try:
            async for batch in source:
                queue.put_nowait((index, batch))
        except Exception as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(index, source)) for index, source in enumerate(sources)]
    try:
        num_open = len(tasks)
        while num_open:
            item = await queue.get()
            if item is None:
                num_open -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
