"""What a step did for one prompt of a call, in the form that outlives the gateway. It knows no text.

A log keeps these beside the bytes that were sent, both of a step or neither, so that `replay` can tell exactly what the
client has. One record is a few bytes a token, more with log-probabilities. As bytes each is msgpack behind its length (4
bytes, big-endian), so that records can be joined and read again.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from headway.core.messages import ChoiceFinished, Finished, TokenDelta, TokenLogprobs
from headway.engine.client import RequestEvent

_LENGTH_BYTES: Final = 4


class ChoiceTokens(msgspec.Struct, frozen=True, array_like=True):
    """Tokens that one choice of a prompt gained; `logprobs` of each, or empty."""

    choice: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


class StepRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a step did.

    prompt       index of the prompt
    tokens       in the order in which they came
    ends         (choice, why the engine ended it)
    num_cached   prompt tokens that the cache gave, told when the last choice ends; else 0
    """

    prompt: int
    tokens: tuple[ChoiceTokens, ...] = ()
    ends: tuple[tuple[int, Literal["stop", "length"]], ...] = ()
    num_cached: int = 0


def record_of(prompt: int, batch: Iterable[RequestEvent]) -> StepRecord:
    """Return what `batch` did for `prompt`; choices that were cancelled or failed are open still."""
    tokens: list[ChoiceTokens] = []
    ends: list[tuple[int, Literal["stop", "length"]]] = []
    num_cached = 0
    for event in batch:
        match event:
            case TokenDelta():
                tokens.append(ChoiceTokens(event.choice, event.token_ids, event.logprobs))
            case ChoiceFinished(choice=choice, reason="stop" | "length" as reason):
                ends.append((choice, reason))
            case Finished():
                num_cached = event.usage.cached_tokens
    return StepRecord(prompt, tuple(tokens), tuple(ends), num_cached)


def encode_step(step: StepRecord) -> bytes:
    """Return a record as bytes; they can be joined with others'."""
    data = msgspec.msgpack.encode(step)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def decode_steps(data: bytes) -> Iterator[StepRecord]:
    """Yield the records of joined bytes; raises msgspec.DecodeError for bytes that are none, or cut short."""
    view, start = memoryview(data), 0
    while start < len(data):
        first = start + _LENGTH_BYTES
        start = first + int.from_bytes(view[start:first], "big")
        if start > len(data):
            raise msgspec.DecodeError("a record is cut short")
        yield msgspec.msgpack.decode(view[first:start], type=StepRecord)
