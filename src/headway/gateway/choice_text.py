"""One choice's tokens become text: detokenised, cut at stop strings, with log-probabilities beside the text they belong to.

A token's text may arrive later than the token (part of a multi-byte character, or held back while it may become a stop
string); its log-probability travels with the text. Tokens that lie wholly in a stop string are not delivered. Where tools
may be called, the calls in the text become events of their own; stop strings and log-probabilities are those of the text
around them. It knows neither sockets nor the engine.
"""

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from headway.core.messages import TokenLogprobs
from headway.gateway.text_events import ChoiceEnd, Piece, ScoredToken, TextEvent, ToolCallArguments
from headway.gateway.tool_parser import Content, Found, ToolParser
from headway.models.detokenizer import Detokenizer
from headway.models.stop_strings import StopMatcher
from headway.wire.chat_response import FinishReason


class ChoiceText:
    """The text of one choice. `num_tokens` counts what was generated, up to the token that completed a stop string.

    tells_ids   whether pieces and the end carry the ids of the tokens that came since the event before
    """

    def __init__(
        self,
        choice: int,
        detokenizer: Detokenizer,
        stop: StopMatcher | None,
        tools: ToolParser | None = None,
        *,
        tells_ids: bool = False,
    ) -> None:
        self.choice = choice
        self.num_tokens = 0
        self._ended = False
        self._detokenizer = detokenizer
        self._stop = stop
        self._tools = tools
        self._num_read = 0  # characters detokenised
        self._num_content = 0  # of them, how far the content goes that the stop strings have seen
        self._num_released = 0  # of them, how far the content goes that was given out
        self._waiting: deque[ScoredToken] = deque()
        self._text: list[str] = []  # released, and not yet in a piece
        self._events: list[TextEvent] = []
        self._tells_ids = tells_ids
        self._ids: list[int] = []  # of the tokens that no event has carried yet

    @property
    def ended(self) -> bool:
        """Whether no more text can come."""
        return self._ended

    def push(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> tuple[TextEvent, ...]:
        """Take a step's tokens; return what they make certain, and the end if a stop string or the last call came."""
        if self._ended:
            return ()
        if self._stop is None and self._tools is None and not logprobs and not self._waiting:
            return self._push_plain(token_ids)
        for index, token_id in enumerate(token_ids):
            self.num_tokens += 1
            if self._tells_ids:
                self._ids.append(token_id)
            if logprobs:
                self._waiting.append(ScoredToken(self._num_read, logprobs[index]))
            self._read(self._detokenizer.push(token_id))
            if self._stop is not None and self._stop.matched:
                return self._end("stop")
            if self._tools is not None and self._tools.full:
                return self._end("tool_calls")
        return self._take()

    def _push_plain(self, token_ids: Sequence[int]) -> tuple[TextEvent, ...]:
        """Take tokens whose text nothing holds back: what the rest of `push` does then, in a third of the time."""
        text = "".join(map(self._detokenizer.push, token_ids))
        self.num_tokens += len(token_ids)
        self._num_read += len(text)
        self._num_content = self._num_released = self._num_read
        if self._tells_ids:
            self._ids += token_ids
        return (Piece(self.choice, text, (), self._take_ids()),) if text else ()

    def finish(self, reason: FinishReason) -> tuple[TextEvent, ...]:
        """The engine ended the choice; return what was held back, and the end. Nothing if it had ended before."""
        if self._ended:
            return ()
        self._read(self._detokenizer.flush())
        if self._tools is not None:
            self._take_found(self._tools.flush())
        if self._stop is not None:
            if self._stop.matched:
                return self._end("stop")
            self._release(self._stop.flush())
        self._put_piece()
        return self._end(reason, tuple(self._waiting))

    def _end(self, reason: FinishReason, scored: tuple[ScoredToken, ...] = ()) -> tuple[TextEvent, ...]:
        self._ended = True
        self._put_piece()
        self._waiting.clear()
        if self._tools is not None and self._tools.num_calls:
            scored = ()
            reason = "tool_calls" if reason == "stop" else reason
        stop = None if self._stop is None else self._stop.matched_string
        self._events.append(ChoiceEnd(self.choice, reason, scored, stop, self._take_ids()))
        return self._take()

    def _read(self, text: str) -> None:
        start = self._num_read
        self._num_read += len(text)
        if self._tools is not None:
            self._take_found(self._tools.push(text))
        elif text:
            self._take_content(start, text)

    def _take_found(self, found: Sequence[Found]) -> None:
        for event in found:
            if self._stop is not None and self._stop.matched:
                return
            if isinstance(event, Content):
                self._take_content(event.start, event.text)
                continue
            if self._stop is not None:  # no stop string reaches across a call
                self._release(self._stop.flush())
            self._put_piece()
            last = self._events[-1] if self._events else None
            if isinstance(event, ToolCallArguments) and isinstance(last, ToolCallArguments):
                self._events[-1] = replace(last, text=last.text + event.text)  # several tokens in one step
            else:
                self._events.append(event)

    def _take_content(self, start: int, text: str) -> None:
        if start > self._num_content:  # after a call, whose tokens' log-probabilities are not delivered
            self._num_released = start
            while self._waiting and self._waiting[0].start < start:
                self._waiting.popleft()
        self._num_content = start + len(text)
        self._release(text if self._stop is None else self._stop.push(text))

    def _release(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._num_released += len(text)

    def _put_piece(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if not text:
            return
        scored: list[ScoredToken] = []
        while self._waiting and self._waiting[0].start < self._num_released:
            scored.append(self._waiting.popleft())
        self._events.append(Piece(self.choice, text, tuple(scored), self._take_ids()))

    def _take_ids(self) -> tuple[int, ...]:
        if not self._ids:
            return ()
        ids, self._ids = tuple(self._ids), []
        return ids

    def _take(self) -> tuple[TextEvent, ...]:
        self._put_piece()
        events, self._events = tuple(self._events), []
        return events
