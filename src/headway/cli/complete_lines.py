"""`headway complete --json-lines`: serves an editor's requests for as long as it runs, one at a time.

A request cancels the one before it: whoever types on does not want that any more. Every line that comes is answered by one.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from headway.cli.complete_outcome import Outcome
from headway.cli.complete_request import EditorRequest, parse_request
from headway.core.errors import InvalidRequest

_READ_BYTES: Final = 1 << 16
_MAX_LINE_BYTES: Final = 16 << 20
"""More than any file that somebody edits by hand."""

Serve = Callable[[EditorRequest], Awaitable[Outcome]]


async def serve_lines(lines: AsyncIterator[bytes], serve: Serve, tell: Callable[[Outcome], None]) -> None:
    """Answer every line with `serve`, until the lines end and the last one is answered."""
    current: tuple[EditorRequest, asyncio.Task[None]] | None = None

    async def answer(request: EditorRequest) -> None:
        tell(await serve(request))

    try:
        async for line in lines:
            if not line.strip():
                continue
            try:
                request = parse_request(line)
            except InvalidRequest as error:
                tell(Outcome(status="mistake", message=error.message))
                continue
            await _end(current, tell)
            current = (request, asyncio.ensure_future(answer(request)))
        if current is not None:
            await asyncio.wait({current[1]})
            current[1].result()
    finally:
        await _end(current, tell)


async def _end(
    current: tuple[EditorRequest, asyncio.Task[None]] | None, tell: Callable[[Outcome], None]
) -> None:
    """Cancel a request that runs, and say so; raises what went wrong in our own code, or with telling."""
    if current is None:
        return
    request, task = current
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled():
        tell(Outcome(id=request.id, status="cancelled", cursor=request.cursor))
    else:
        task.result()


async def stdin_lines() -> AsyncIterator[bytes]:
    """Yield standard input's lines as they come, whether it is a pipe, a terminal or a file.

    A thread reads: event loops cannot wait for files. It reads the descriptor, since Python's own buffer would be locked by
    a thread that still waits when the program ends.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        while True:
            try:
                piece = os.read(0, _READ_BYTES)
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop has ended
                return
            if not piece:
                return

    threading.Thread(target=read, daemon=True).start()
    async for line in split_lines(iter_queue(pieces)):
        yield line


async def iter_queue(pieces: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
    """Yield pieces up to an empty one."""
    while piece := await pieces.get():
        yield piece


async def split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield whole lines, and what follows the last; one that is too long comes cut, and is then no JSON."""
    rest = bytearray()
    async for piece in pieces:
        rest += piece
        while (end := rest.find(b"\n")) >= 0:
            line = bytes(rest[:end])
            del rest[: end + 1]
            yield line
        if len(rest) > _MAX_LINE_BYTES:
            del rest[_MAX_LINE_BYTES:]
    if rest:
        yield bytes(rest)
