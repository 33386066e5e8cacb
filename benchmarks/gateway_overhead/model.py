"""A model that costs next to nothing: an engine that answers from a script, a token for each byte, a template of a line.

What is read of it comes as from any engine: by the stream that holds what waits.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from headway.core.events import EngineState
from headway.core.messages import ChoiceFinished, EngineInfo, EngineStats, Finished, TokenDelta, Usage
from headway.core.request import Request
from headway.engine.client import RequestEvent
from headway.engine.request_table import RequestStream

Batch = tuple[RequestEvent, ...]

NAME: Final = "scripted"
QUEUED: Final = 1001
"""`max_tokens` of a request that never gets an event,"""
BEGUN: Final = 1002
"""and of one that gets a single one, and no other."""
INFO: Final = EngineInfo(
    model=NAME, vocab_size=256, max_context=4096, num_blocks=1 << 20, block_size=16, system_fingerprint="fp_0"
)


class ScriptedEngine:
    """An `EngineClient` whose steps have a token each, as many as the request asks for.

    in_turns   a step comes in a turn of the event loop of its own, as one of an engine does; else all come in the first
    """

    def __init__(self, *, in_turns: bool = False) -> None:
        self._in_turns = in_turns
        self.state: EngineState = "ready"
        self.info = INFO
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: dict[str, tuple[Request, RequestStream]] = {}

    def statistics(self) -> EngineStats:
        """See `EngineClient`."""
        return EngineStats(num_running=len(self._silent))

    def submit_nowait(self, request: Request) -> RequestStream:
        """See `EngineClient`."""
        stream = RequestStream(request)
        if request.max_tokens in (QUEUED, BEGUN):
            self._silent[request.request_id] = request, stream
            for step in _tokens(request, 1 if request.max_tokens == BEGUN else 0):
                stream.push(step)
        else:
            task = asyncio.create_task(self._answer(request, stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return stream

    def cancel_nowait(
        self, request_id: str, choice: int | None = None, reason: Literal["cancelled", "stop"] = "cancelled"
    ) -> None:
        """See `EngineClient`; only silent requests can still be cancelled."""
        del choice, reason
        if (silent := self._silent.pop(request_id, None)) is not None:
            request, stream = silent
            stream.push(_end(request, 1, "cancelled"))

    async def release_session(self, tenant: str, session: str) -> bool:
        """There are no sessions."""
        del tenant, session
        return False

    async def wait_ready(self) -> None:
        """It always is."""

    async def start(self) -> None:
        """It has."""

    async def drain(self, timeout_s: float) -> bool:
        """See `EngineClient`."""
        del timeout_s
        return not self._silent

    async def close(self) -> None:
        """There is nothing to end."""

    async def _answer(self, request: Request, stream: RequestStream) -> None:
        for step in _tokens(request, request.max_tokens):
            stream.push(step)
            if self._in_turns:
                await asyncio.sleep(0)
        stream.push(_end(request, request.max_tokens, "length"))


def _tokens(request: Request, count: int) -> Iterator[Batch]:
    for _ in range(count):
        yield (TokenDelta(request.request_id, 0, (ord("x"),), ()),)


def _end(request: Request, count: int, reason: Literal["length", "cancelled"]) -> Batch:
    usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=count, cached_tokens=0)
    return (
        ChoiceFinished(request.request_id, 0, reason),
        Finished(request_id=request.request_id, usage=usage),
    )


class ByteTokenizer:
    """Token id = byte."""

    eos_ids: tuple[int, ...] = ()

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> Sequence[int]:
        """Return bytes."""
        del parse_special, add_bos
        return text.encode()

    def encode_continuation(self, text: str) -> Sequence[int]:
        """Return bytes."""
        return text.encode()

    def min_num_tokens(self, text: str) -> int:
        """Return the number of characters."""
        return len(text)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of bytes."""
        del skip_special
        return bytes(token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return one byte."""
        return bytes((token_id,))

    def is_special(self, token_id: int) -> bool:
        """No byte is."""
        del token_id
        return False


class PlainTemplate:
    """What is said, and nothing else."""

    source = ""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """Return the messages' texts."""
        del tools, extra
        return "\n".join(str(message["content"]) for message in messages)
