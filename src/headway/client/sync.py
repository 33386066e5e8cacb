"""The client for programs without an event loop: the same client, on a loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from headway.client.answer import Answer, Delta
from headway.client.client import Client
from headway.client.fill_in import CodeContext
from headway.client.policy import Deadlines
from headway.client.stream import Stream

T = TypeVar("T")


class SyncClient:
    """A `Client` that blocks. Ctrl-C ends a call, and closes its connection, as soon as it is pressed.

    Any thread may call it. It owns the client it is made of; use it as a context, or call `close`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headway-client", daemon=True)
        self._thread.start()

    def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        deadlines: Deadlines | None = None,
        **fields: object,
    ) -> Answer:
        """As `Client.chat`."""
        return self._run(self._client.chat(messages, deadlines=deadlines, **fields))

    def complete(
        self, prompt: str, *, suffix: str = "", deadlines: Deadlines | None = None, **fields: object
    ) -> Answer:
        """As `Client.complete`."""
        return self._run(self._client.complete(prompt, suffix=suffix, deadlines=deadlines, **fields))

    def fill_in(
        self, context: CodeContext, *, deadlines: Deadlines | None = None, **fields: object
    ) -> Answer:
        """As `Client.fill_in`."""
        return self._run(self._client.fill_in(context, deadlines=deadlines, **fields))

    def stream(
        self,
        messages: Sequence[Mapping[str, object]] | None = None,
        *,
        prompt: str | None = None,
        suffix: str = "",
        deadlines: Deadlines | None = None,
        **fields: object,
    ) -> "SyncStream":
        """As `Client.stream`."""
        stream = self._client.stream(messages, prompt=prompt, suffix=suffix, deadlines=deadlines, **fields)
        return SyncStream(self, stream)

    def close(self) -> None:
        """Close every connection and end the thread."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._client.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop; an interrupt here cancels it there, and waits until its connection is closed."""
        task: asyncio.Future[T] | None = None
        ended = threading.Event()

        async def tracked() -> T:
            nonlocal task
            task = asyncio.ensure_future(work)
            try:
                return await task
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(tracked(), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                ended.wait(timeout=_CLOSE_S)
            raise


_CLOSE_S = 1.0
"""How long an interrupt waits for a connection to be closed, which takes no time unless the loop is stuck."""


class SyncStream:
    """A `Stream` that blocks: iterate it within a context."""

    def __init__(self, client: SyncClient, stream: Stream) -> None:
        self._client = client
        self._stream = stream

    @property
    def text(self) -> str:
        """The text that was handed on so far."""
        return self._stream.text

    @property
    def answer(self) -> Answer:
        """The whole answer, once the deltas are through."""
        return self._stream.answer

    def collect(self) -> Answer:
        """Take what is left and return the whole answer; raises CallError."""
        return self._client._run(self._stream.collect())

    def texts(self) -> Iterator[str]:
        """Yield the text alone, as it comes; raises CallError."""
        return (delta.text for delta in self if delta.text)

    def close(self) -> None:
        """Close every connection of the call at once."""
        self._client._run(self._stream.aclose())

    def __iter__(self) -> "SyncStream":
        return self

    def __next__(self) -> Delta:
        delta = self._client._run(self._next())
        if delta is None:
            raise StopIteration
        return delta

    def __enter__(self) -> "SyncStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _next(self) -> Delta | None:
        """A coroutine cannot raise StopIteration, and StopAsyncIteration means nothing to a caller that blocks."""
        return await anext(self._stream, None)
