"""Reads one streamed completion of a remote engine into the events of a request. Pure: events in, events out.

Whatever the server sends is checked before it counts: tokens that no vocabulary has, or more of them than were asked for,
choices that nobody asked for or that had ended, an end before its time.
"""

from typing import Final, Literal

import msgspec

from headway.core.errors import EngineDied, HeadwayError, UpstreamFailed
from headway.core.messages import ChoiceFinished, FinishReason, TokenDelta, TokenLogprobs, Usage
from headway.core.request import Request
from headway.engine.remote_errors import of_event
from headway.wire.sse_reader import SseEvent

_TOKEN_PREFIX: Final = "token_id:"
_REASONS: Final[dict[str, FinishReason]] = {"stop": "stop", "length": "length"}


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class Chunk(msgspec.Struct):
    """One event of a streamed completion, or a whole one: as much of it as is read here."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    system_fingerprint: str | None = None
    error: msgspec.Raw | None = None


_DECODER: Final = msgspec.json.Decoder(Chunk)


class RemoteAnswer:
    """What has come of one request's answer. `done`: the server has said that nothing follows."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self._request = request
        self._vocab_size = vocab_size
        self._open = dict.fromkeys(range(request.n), 0)  # tokens by the number that the server knows
        self._num_tokens = 0
        self._num_cached = 0
        self.done = False

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        return Usage(
            prompt_tokens=len(self._request.token_ids),
            completion_tokens=self._num_tokens,
            cached_tokens=self._num_cached,
        )

    @property
    def ended(self) -> bool:
        """Whether every choice has ended."""
        return not self._open

    def take(self, event: SseEvent) -> tuple[list[TokenDelta], list[ChoiceFinished]]:
        """Return what an event brings; raises the HeadwayError that ends the request."""
        if event.data == b"[DONE]":
            self.done = True
            if self._open:
                raise _wrong("ended its answer too soon")
            return [], []
        if event.name == b"error":
            raise of_event(event.data) or _wrong("failed")
        try:
            chunk = _DECODER.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise of_event(event.data) or _wrong("sent an event that is no completion") from None
        if chunk.error is not None and chunk.error != b"null":
            raise of_event(event.data) or _wrong("failed")
        if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
            cached = chunk.usage.prompt_tokens_details.cached_tokens or 0
            self._num_cached = max(0, min(cached, len(self._request.token_ids)))
        deltas: list[TokenDelta] = []
        ends: list[ChoiceFinished] = []
        for choice in chunk.choices:
            if choice.index in self._open:  # else we have ended it, and the server does not know
                self._take_choice(choice, deltas, ends)
            elif not 0 <= choice.index < self._request.n:
                raise _wrong("answered with a choice that nobody asked for")
        return deltas, ends

    def cancel(self, choice: int | None, reason: Literal["cancelled", "stop"]) -> tuple[ChoiceFinished, ...]:
        """End a choice (None = all) from our side; nothing of it counts any more."""
        ended = [index for index in self._open if choice is None or self._number(index) == choice]
        for index in ended:
            del self._open[index]
        return tuple(ChoiceFinished(self._request.request_id, self._number(i), reason) for i in ended)

    def fail(self) -> tuple[ChoiceFinished, ...]:
        """End what is open with an error."""
        ended, self._open = tuple(self._open), {}
        return tuple(ChoiceFinished(self._request.request_id, self._number(i), "error") for i in ended)

    def cut_off(self) -> HeadwayError:
        """Return what it means that the connection ended without the server's last word."""
        return EngineDied("The model's engine ended in the middle of the answer; send the request again.")

    def _number(self, index: int) -> int:
        """Return the number by which we know a choice of the server's."""
        return self._request.first_choice + index

    def _take_choice(self, choice: _Choice, deltas: list[TokenDelta], ends: list[ChoiceFinished]) -> None:
        ids, logprobs = self._tokens(choice)
        reason = choice.finish_reason
        if reason == "stop" and ids and ids[-1] in self._request.stop_token_ids:
            ids, logprobs = ids[:-1], logprobs[:-1]  # vLLM tells it, we do not
        if ids:
            if not 0 <= min(ids) <= max(ids) < self._vocab_size:
                raise _wrong("answered with a token outside the model's vocabulary")
            self._num_tokens += len(ids)
            self._open[choice.index] += len(ids)
            if self._open[choice.index] > self._request.max_tokens:
                raise _wrong("answered with more tokens than were asked for")
            deltas.append(TokenDelta(self._request.request_id, self._number(choice.index), ids, logprobs))
        if reason is not None:
            if reason not in _REASONS:
                raise _wrong(f"ended a choice with the reason {reason[:40]!r}")
            del self._open[choice.index]
            ends.append(
                ChoiceFinished(self._request.request_id, self._number(choice.index), _REASONS[reason])
            )

    def _tokens(self, choice: _Choice) -> tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]:
        num_top = self._request.sampling.num_logprobs
        if num_top is None:
            if choice.token_ids is None and choice.text:
                raise _wrong("does not tell which tokens it made")
            return tuple(choice.token_ids or ()), ()
        found = choice.logprobs or _Logprobs()
        tops = found.top_logprobs or [None] * len(found.tokens)
        try:
            scored = tuple(
                TokenLogprobs(
                    _token_id(token), -9999.0 if logprob is None else logprob, _best(top or {}, num_top)
                )
                for token, logprob, top in zip(found.tokens, found.token_logprobs, tops, strict=True)
            )
        except ValueError:
            raise _wrong("sent log-probabilities that do not name tokens") from None
        if len(scored) < len(choice.token_ids or ()) and not found.tokens:
            raise _wrong("sent tokens without log-probabilities")
        return tuple(one.token_id for one in scored), scored


def _best(top: dict[str, float], num: int) -> tuple[tuple[int, float], ...]:
    pairs = sorted(((_token_id(token), logprob) for token, logprob in top.items()), key=lambda pair: -pair[1])
    return tuple(pairs[:num])


def _token_id(text: str) -> int:
    """Return the id that a token's name gives; raises ValueError."""
    if not text.startswith(_TOKEN_PREFIX):
        raise ValueError(text)
    return int(text.removeprefix(_TOKEN_PREFIX))


def _wrong(what: str) -> UpstreamFailed:
    return UpstreamFailed(f"The model's engine {what}; send the request again.")
