"""How many tokens each chunk of an answer stands for, and how we know.

Servers send several tokens in one chunk (speculation, a busy server, text held back until a character is whole), and
seldom say how many. What the usage counts in total is spread over the chunks; without usage a tokenizer's counts are
taken; without both a chunk counts as one, and the result says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.lab.exchange import Exchange

TokenSource = Literal["usage", "tokenizer", "chunks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of each text event of an answer, in order; `source`: `chunks` = one each, for want of anything better."""

    source: TokenSource
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens that brought text."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Tokens that came with one read: chunks with the same stamp are one arrival, since nobody saw them apart."""

    at_ns: int
    num_tokens: int


def token_counts(exchange: Exchange) -> TokenCounts:
    """Count an answer's tokens chunk by chunk."""
    events = exchange.text_events
    known = [event.num_tokens for event in events if event.num_tokens is not None]
    all_known = len(known) == len(events)
    usage = exchange.answer.usage
    total = usage.completion_tokens if usage else None
    if total and events:
        # The token that ends an answer is counted by servers and brings no text.
        if total == len(events) + 1 and exchange.answer.finish_reason in ("stop", "tool_calls"):
            total -= 1
        if not all_known or sum(known) != total:
            weights = known if all_known else [event.num_chars for event in events]
            known = apportion(total, weights)
        return TokenCounts(source="usage", counts=tuple(known))
    if all_known and events:
        return TokenCounts(source="tokenizer", counts=tuple(known))
    return TokenCounts(source="chunks", counts=(1,) * len(events))


def common_source(counts: Iterable[TokenCounts]) -> TokenSource | Literal["mixed"] | None:
    """Return what all of these were counted by, `mixed` where that differs; None of none."""
    sources = {count.source for count in counts}
    return None if not sources else sources.pop() if len(sources) == 1 else "mixed"


def arrivals(exchange: Exchange) -> tuple[TokenSource, list[Arrival]]:
    """Return an answer's arrivals, their stamps strictly rising, and how their tokens were counted."""
    tokens = token_counts(exchange)
    merged: list[Arrival] = []
    for event, num_tokens in zip(exchange.text_events, tokens.counts, strict=True):
        if merged and merged[-1].at_ns == event.at_ns:
            num_tokens += merged.pop().num_tokens
        merged.append(Arrival(at_ns=event.at_ns, num_tokens=num_tokens))
    return tokens.source, merged


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Spread `total` ≥ 1 tokens over chunks of given weights ≥ 0; the counts add up to `total`.

    Each chunk gets one token and the rest goes by weight above the mean weight of a token: chunks of one token and of
    eight are told apart by their length. Where chunks outnumber tokens, the first gets one (it made the TTFT) and the
    rest go by weight.
    """
    if total == len(weights):
        return [1] * total
    weights = [max(1, weight) for weight in weights]
    if total < len(weights):
        return [1, *_proportional(total - 1, weights[1:])]
    sum_weights = sum(weights)
    above = [max(0, weight * total - sum_weights) for weight in weights]
    return [1 + more for more in _proportional(total - len(weights), above)]


def _proportional(total: int, weights: Sequence[int]) -> list[int]:
    """Spread by cumulative shares, rounded down, so that errors never add up."""
    sum_weights = sum(weights)
    counts = []
    weight_so_far = given = 0
    for weight in weights:
        weight_so_far += weight
        share = total * weight_so_far // sum_weights if sum_weights else 0
        counts.append(share - given)
        given = share
    return counts
