"""Asks an endpoint and keeps the records: one exchange for every request, however it ends.

Connections are kept open and used again, the one that was free last first; a request that finds none, or one that the
server was closing, opens its own, in its own time, which its record tells apart. While an answer comes nothing of it is
read but the framing of HTTP; JSON is parsed when the answer has ended. It decides nothing about load: `lab/drive.py` does.
"""

import asyncio
import resource
import time
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headway.core.clock import NS_PER_MS
from headway.lab.connection import Connection, Response, connect
from headway.lab.endpoint import Endpoint
from headway.lab.exchange import Answer, Exchange, Failure, Stamps
from headway.lab.request_headers import Headers
from headway.lab.transcript import CountTokens, Ending, Transcript

ROUTE = "/chat/completions"
READS_AT_A_TIME = 16
BYTES_AT_A_TIME = 4096
"""A tenth of a millisecond's work."""
STALE_NS = 100 * NS_PER_MS
"""Within which a kept connection shows that it had been closed before it was used again."""

_ENDINGS: dict[str, Ending] = {
    "complete": "complete",
    "closed": "closed",
    "silent": "silence",
    "garbage": "no_http",
    "too large": "no_http",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the client waits, in seconds."""

    connect_s: float = 10.0
    silence_s: float = 120.0
    """Without a byte, the first included."""


class Client(AbstractContextManager["Client"]):
    """Use it as a context manager inside a loop; it closes its connections at the end."""

    def __init__(
        self, endpoint: Endpoint, patience: Patience | None = None, count_tokens: CountTokens | None = None
    ) -> None:
        self._endpoint = endpoint
        self._patience = patience or Patience()
        self._count_tokens = count_tokens
        self._tls = endpoint.tls_context()
        self._free: list[Connection] = []
        self.num_connections = 0
        """Opened so far."""

    def __enter__(self) -> Self:
        _allow_connections()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()

    async def ask(
        self,
        body: bytes,
        *,
        intended_ns: int,
        conversation: int = 0,
        turn: int = 1,
        label: str = "",
        headers: Headers = (),
    ) -> Exchange:
        """Send a request now; `intended_ns` is when it was due. Raises nothing for what an endpoint does."""
        dispatched_ns = time.monotonic_ns()
        data = self._endpoint.post(ROUTE, body, headers)
        connection, connect_ns, response = self._free_connection(), 0, None
        if connection is not None:
            response = await connection.request(data, silence_s=self._patience.silence_s)
            soon = time.monotonic_ns() - response.written_ns < STALE_NS
            if response.end == "closed" and response.first_byte_ns is None and soon:
                # The server closed it just as it was used again (RFC 9112, 9.3.1): llama-server does after every stream,
                # having promised to keep it. No user's client fails there: it asks on a new one. One that took its time
                # had taken the request.
                response = None
        if connection is None or response is None:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError) as error:
                ended_ns = time.monotonic_ns()
                stamps = Stamps(intended_ns=intended_ns, dispatched_ns=dispatched_ns, ended_ns=ended_ns)
                failure = Failure(kind="connection", message=str(error) or "connecting took too long")
                return Exchange(
                    stamps=stamps,
                    answer=Answer(failure=failure),
                    conversation=conversation,
                    turn=turn,
                    label=label,
                )
            connect_ns = time.monotonic_ns() - connection.connecting_ns  # until it can be used
            response = await connection.request(data, silence_s=self._patience.silence_s)
        ended_ns = time.monotonic_ns()
        if connection.is_open:
            self._free.append(connection)
        return Exchange(
            stamps=Stamps(
                intended_ns=intended_ns,
                dispatched_ns=dispatched_ns,
                written_ns=response.written_ns,
                first_byte_ns=response.first_byte_ns,
                ended_ns=ended_ns,
                connect_ns=connect_ns,
            ),
            answer=await _read_bit_by_bit(response, self._count_tokens),
            conversation=conversation,
            turn=turn,
            label=label,
        )

    def _free_connection(self) -> Connection | None:
        while self._free:
            connection = self._free.pop()
            if connection.is_open:  # else the server has closed it meanwhile
                return connection
        return None

    async def _connect(self) -> Connection:
        connection = await connect(
            self._endpoint.host, self._endpoint.port, tls=self._tls, timeout_s=self._patience.connect_s
        )
        self.num_connections += 1
        return connection


def _allow_connections() -> None:
    """Let this process open as many files as the system allows: the usual 1,024 would end as the endpoint's failures."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _read_bit_by_bit(response: Response, count_tokens: CountTokens | None) -> Answer:
    reading, cancelled = _reading(response, count_tokens), False
    while True:
        try:
            next(reading)
        except StopIteration as read:
            answer: Answer = read.value
            task = asyncio.current_task()
            if cancelled and task is not None:
                task.cancel()  # at the next wait, when the record of what was over is kept
            return answer
        try:
            if not cancelled:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled = True


def _reading(response: Response, count_tokens: CountTokens | None) -> Generator[None, None, Answer]:
    """Read what a response has kept, each event with the stamp of its last byte; yields after every few."""
    assert response.end is not None
    transcript = Transcript()
    if response.status is not None:
        transcript.responded(response.status, response.headers.get("retry-after"))
        start = num_reads = num_bytes = 0
        for at_ns, end in zip(response.reads_ns, response.reads_end, strict=True):
            transcript.received(at_ns, bytes(response.body[start:end]))
            num_reads, num_bytes = num_reads + 1, num_bytes + end - start
            start = end
            if num_reads == READS_AT_A_TIME or num_bytes >= BYTES_AT_A_TIME:
                num_reads = num_bytes = 0
                yield
    return transcript.answer(_ENDINGS[response.end], count_tokens)
