"""One choice's tokens become text: detokenised, cut at stop strings, with log-probabilities beside the text they belong to.

A token's text may arrive later than the token (part of a multi-byte character, or held back while it may become a stop
string); its log-probability travels with the text. Tokens that lie wholly in a stop string are not delivered. It knows
neither sockets nor the engine.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.messages import TokenLogprobs
from headway.models.detokenizer import Detokenizer
from headway.models.stop_strings import StopMatcher
from headway.wire.chat_response import FinishReason


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token with log-probabilities. `start`: where its text begins in the choice's text, in characters."""

    start: int
    logprobs: TokenLogprobs


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that one choice gained: never empty."""

    choice: int
    text: str
    scored: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A choice calls a tool. `index`: the call's number within the choice, from 0, in the order of their starts."""

    choice: int
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """Text that a call's arguments gained, never empty. A call's come one after the other, before the next call starts."""

    choice: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """A choice ended. `scored`: tokens without text of their own that no piece carried."""

    choice: int
    reason: FinishReason
    scored: tuple[ScoredToken, ...] = ()


class ChoiceText:
    """The text of one choice. `num_tokens` counts what was generated, up to the token that completed a stop string."""

    def __init__(self, choice: int, detokenizer: Detokenizer, stop: StopMatcher | None) -> None:
        self.choice = choice
        self.num_tokens = 0
        self._ended = False
        self._detokenizer = detokenizer
        self._stop = stop
        self._num_read = 0  # characters detokenised
        self._num_released = 0  # characters given out
        self._waiting: deque[ScoredToken] = deque()

    @property
    def ended(self) -> bool:
        """Whether no more text can come."""
        return self._ended

    def push(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> tuple[Piece | ChoiceEnd, ...]:
        """Take a step's tokens; return the text they make certain, and the end if a stop string appeared."""
        if self._ended:
            return ()
        parts: list[str] = []
        for index, token_id in enumerate(token_ids):
            self.num_tokens += 1
            if logprobs:
                self._waiting.append(ScoredToken(self._num_read, logprobs[index]))
            parts.append(self._read(self._detokenizer.push(token_id)))
            if self._stop is not None and self._stop.matched:
                piece = self._piece("".join(parts))
                self._waiting.clear()
                self._ended = True
                return (*piece, ChoiceEnd(self.choice, "stop"))
        return self._piece("".join(parts))

    def finish(self, reason: FinishReason) -> tuple[Piece | ChoiceEnd, ...]:
        """The engine ended the choice; return what was held back, and the end. Nothing if it had ended before."""
        if self._ended:
            return ()
        self._ended = True
        text = self._read(self._detokenizer.flush())
        if self._stop is not None:
            if self._stop.matched:
                reason = "stop"
            else:
                text += self._stop.flush()
        piece = self._piece(text)
        return (*piece, ChoiceEnd(self.choice, reason, tuple(self._waiting)))

    def _read(self, text: str) -> str:
        self._num_read += len(text)
        return text if self._stop is None or not text else self._stop.push(text)

    def _piece(self, text: str) -> tuple[Piece, ...]:
        if not text:
            return ()
        self._num_released += len(text)
        scored: list[ScoredToken] = []
        while self._waiting and self._waiting[0].start < self._num_released:
            scored.append(self._waiting.popleft())
        return (Piece(self.choice, text, tuple(scored)),)
