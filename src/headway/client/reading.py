"""Reads one answer out of the bytes of one connection or, where its stream is resumed, of several. Pure: no I/O, no clock.

An answer is whole when its `finish_reason` and `[DONE]` have come. Anything else that ends it is a failure: a stream that
stops before `[DONE]` may have lost its last words, and an error within a stream that began with 200 is an error.
"""

import re
from dataclasses import dataclass
from typing import Final

from headway.client.answer import Delta, Usage
from headway.client.chunks import read_chunk, read_error
from headway.client.failure import Failure, Kind
from headway.wire.sse_reader import EventTooLarge, SseEvent, SseReader

_DONE: Final = b"[DONE]"
_EVENT_ID: Final = re.compile(rb"([0-9a-f]{32})\.([0-9]{1,16})\.([0-9]{1,16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An answer that is whole."""

    finish_reason: str
    usage: Usage | None
    model: str


class AnswerReader:
    """One answer as far as it has come. `end`: None = it has not.

    stream_id    of a stream that can be resumed, once it has told
    seq          the last numbered event that was read
    num_events   numbered events that were new
    """

    def __init__(self) -> None:
        self.end: Ended | Failure | None = None
        self.stream_id: str | None = None
        self.num_events = 0
        self._epoch = 0
        self.seq = 0
        self._sse = SseReader()
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model = ""

    @property
    def after(self) -> str:
        """After which event the stream goes on, as a request for the rest says it."""
        return f"{self._epoch}.{self.seq}"

    def reconnected(self) -> None:
        """Begin to read another connection's bytes of the same answer."""
        self._sse = SseReader()

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes of a stream and return what they add; nothing after the end."""
        if self.end is not None:
            return []
        too_large = None
        try:
            events = self._sse.feed(data)
        except EventTooLarge as error:
            events, too_large = error.events, error
        deltas = [delta for event in events if (delta := self._take(event)) is not None]
        if too_large is not None and self.end is None:
            self.end = Failure(kind=Kind.BROKEN, message=f"What came is no answer: {too_large}.")
        return deltas

    def whole(self, body: bytes) -> list[Delta]:
        """Take an answer that came at once, from an endpoint that does not stream."""
        chunk = read_chunk(body)
        if isinstance(chunk, Failure):
            self.end = chunk
            return []
        if chunk.finish_reason is None:
            self.end = Failure(
                kind=Kind.BROKEN, message="What came is no answer of OpenAI's API: it has no end."
            )
            return []
        self.end = Ended(finish_reason=chunk.finish_reason, usage=chunk.usage, model=chunk.model)
        return [] if chunk.delta is None else [chunk.delta]

    def _take(self, event: SseEvent) -> Delta | None:
        if self.end is not None or not self._is_next(event):
            return None
        if event.data.strip() == _DONE:
            self.end = self._whole_answer()
            return None
        if event.name == b"error":
            self.end = read_error(event.data, None)
            return None
        chunk = read_chunk(event.data)
        if isinstance(chunk, Failure):
            self.end = chunk
            return None
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._usage = chunk.usage or self._usage
        self._model = chunk.model or self._model
        return chunk.delta

    def _whole_answer(self) -> Ended | Failure:
        if self._finish_reason is None:
            return Failure(kind=Kind.CUT, message="The answer ended without saying why.")
        return Ended(finish_reason=self._finish_reason, usage=self._usage, model=self._model)

    def _is_next(self, event: SseEvent) -> bool:
        """Whether an event is new; one that was read before is passed over, one after a gap ends the answer."""
        if event.id is None:
            return True
        match = _EVENT_ID.fullmatch(event.id)
        if match is None:
            return True  # another server's ids: they number nothing that we would know
        stream_id, epoch, seq = match[1].decode(), int(match[2]), int(match[3])
        if self.stream_id is None:
            self.stream_id, self._epoch = stream_id, epoch
        if (stream_id, epoch) == (self.stream_id, self._epoch) and seq <= self.seq:
            return False
        if (stream_id, epoch, seq) != (self.stream_id, self._epoch, self.seq + 1):
            self.end = _gap()
            return False
        self.seq = seq
        self.num_events += 1
        return True


def _gap() -> Failure:
    return Failure(
        kind=Kind.CUT,
        code="resync_required",
        message="The stream went on elsewhere than where it stopped; ask again.",
        may_retry=False,
    )
