"""What a program calls: deadlines, fallbacks, resumed streams. The public names are `headway.client.__all__`.

Importing this imports no HTTP library: an editor's request goes out sooner, and a client can be declared without one.
"""

from headway.client.answer import Answer, Attempt, Delta, ToolCall, ToolCallDelta, Usage
from headway.client.client import Client
from headway.client.errors import (
    AnswerCut,
    AnswerMalformed,
    CallError,
    DeadlinePassed,
    Refused,
    Throttled,
    Unreachable,
)
from headway.client.fill_in import CodeContext
from headway.client.policy import CannedAnswer, Deadlines, Endpoint, Hedging, Throttling
from headway.client.stream import Stream
from headway.client.sync import SyncClient, SyncStream

__all__ = [
    "Answer",
    "AnswerCut",
    "AnswerMalformed",
    "Attempt",
    "CallError",
    "CannedAnswer",
    "Client",
    "CodeContext",
    "DeadlinePassed",
    "Deadlines",
    "Delta",
    "Endpoint",
    "Hedging",
    "Refused",
    "Stream",
    "SyncClient",
    "SyncStream",
    "Throttled",
    "Throttling",
    "ToolCall",
    "ToolCallDelta",
    "Unreachable",
    "Usage",
]
