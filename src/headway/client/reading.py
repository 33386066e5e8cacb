"""Reads one answer out of the bytes of one connection or, where its stream is resumed, of several. Pure: no I/O, no clock.

An answer is whole when its `finish_reason` and `[DONE]` have come. Anything else that ends it is a failure: a stream that
stops before `[DONE]` may have lost its last words, and an error within a stream that began with 200 is an error.
"""

from dataclasses import dataclass, replace
from typing import Final

from headway.client.answer import Delta, Usage
from headway.client.chunks import read_chunk, read_error
from headway.client.failure import Failure, Kind
from headway.core.errors import InvalidRequest, ResyncRequired
from headway.streams.ids import Cursor, event_id, parse_event_id
from headway.streams.receiver import Receiver
from headway.wire.sse_reader import EventTooLarge, SseEvent, SseReader

_DONE: Final = b"[DONE]"
_ERROR: Final = b"error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An answer that is whole."""

    finish_reason: str
    usage: Usage | None
    model: str


class AnswerReader:
    """One answer as far as it has come. `end`: None = it has not.

    stream_id  of a stream that can be resumed, once it has told
    gap        events are missing before those that came last: the connection is of no use, the next may have them
    """

    def __init__(self) -> None:
        self.end: Ended | Failure | None = None
        self.stream_id: str | None = None
        self.gap = False
        self._receiver = Receiver()
        self._sse = SseReader()
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model = ""

    @property
    def cursor(self) -> Cursor:
        """After which event the stream goes on."""
        return self._receiver.cursor

    @property
    def last_event_id(self) -> str:
        """What a request for the rest names; raises RuntimeError without a `stream_id`."""
        if self.stream_id is None:
            raise RuntimeError("the stream has no id")
        return event_id(self.stream_id, self.cursor)

    def reconnected(self) -> None:
        """Begin to read another connection's bytes of the same answer."""
        self._sse = SseReader()
        self.gap = False

    def feed(self, data: bytes, now_ns: int) -> list[Delta]:
        """Take the next bytes of a stream and return what they add; nothing after the end, or a gap."""
        if self.end is not None or self.gap:
            return []
        too_large = None
        try:
            events = self._sse.feed(data)
        except EventTooLarge as error:
            events, too_large = error.events, error
        deltas = [delta for event in events if (delta := self._take(event, now_ns)) is not None]
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

    def _take(self, event: SseEvent, now_ns: int) -> Delta | None:
        if self.end is not None or self.gap or not self._is_next(event, now_ns):
            return None
        if event.data.strip() == _DONE:
            self.end = self._whole_answer()
            return None
        if event.name == _ERROR:
            failure = read_error(event.data, None)
            gone = self.stream_id is not None and failure.status in (404, 410)
            self.end = replace(failure, kind=Kind.CUT, may_retry=False) if gone else failure
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

    def _is_next(self, event: SseEvent, now_ns: int) -> bool:
        """Whether an event is to be read: not one that was read before, nor one behind a gap. Errors need no number."""
        if event.id is None or event.name == _ERROR:
            return True
        try:
            stream_id, at = parse_event_id(event.id.decode("latin-1"))
        except InvalidRequest:
            return True  # another server's ids: they number nothing that we would know
        if self.stream_id is None:
            self.stream_id = stream_id
        try:
            verdict = self._receiver.event(at, now_ns)
        except ResyncRequired as error:
            self.end = _resync(error.message)
            return False
        if stream_id != self.stream_id:
            self.end = _resync("The stream went on as another one; send the request again.")
            return False
        self.gap = verdict == "gap"
        return verdict == "take"


def _resync(message: str) -> Failure:
    return Failure(kind=Kind.CUT, code=ResyncRequired.code, message=message, may_retry=False)
