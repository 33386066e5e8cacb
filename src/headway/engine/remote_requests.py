"""One request at a remote engine: its stages, its answer so far, and how long nothing was heard. It knows no HTTP."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from headway.core.clock import NS_PER_S
from headway.core.errors import HeadwayError
from headway.core.messages import ErrorInfo, Finished
from headway.core.request import Request
from headway.engine.remote_answer import RemoteAnswer
from headway.engine.remote_config import RemoteConfig

LINGER_NS: Final = NS_PER_S
"""How long a server may take to end a response whose answer is whole: then the connection can be used again."""


@dataclass(slots=True, eq=False)
class RemoteRequest:
    """Owned by the client. Times are monotonic nanoseconds, None = not reached; `heard_ns`: something came, or went out."""

    request: Request
    answer: RemoteAnswer
    queued_ns: int
    sent_ns: int | None = None
    first_token_ns: int | None = None
    heard_ns: int | None = None
    is_over: bool = False
    task: asyncio.Task[None] | None = field(default=None)

    def is_silent(self, config: RemoteConfig, now_ns: int) -> bool:
        """Whether its time-out has passed: that of the first token, or that between two pieces."""
        if self.sent_ns is None or self.heard_ns is None:
            return False
        if self.first_token_ns is None:
            return now_ns - self.sent_ns >= config.first_token_timeout_s * NS_PER_S
        return now_ns - self.heard_ns >= config.gap_timeout_s * NS_PER_S

    def has_lingered(self, now_ns: int) -> bool:
        """Whether its connection, which holds its place, should have ended after the answer."""
        return self.heard_ns is not None and now_ns - self.heard_ns >= LINGER_NS

    def finished(self, error: HeadwayError | None, now_ns: int) -> Finished:
        """Return its terminal event."""
        return Finished(
            request_id=self.request.request_id,
            usage=self.answer.usage,
            error=None if error is None else ErrorInfo.of(error),
            queued_ns=self.queued_ns,
            first_scheduled_ns=self.sent_ns,
            first_token_ns=self.first_token_ns,
            finished_ns=now_ns,
        )
