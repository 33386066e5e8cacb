"""A run's latencies taken apart: by turn of a conversation, by part of the workload, by whether the cache helped.

Pure functions over exchanges, in any order. An empty result says that there is nothing to take apart. A warm-up is left out
of latencies, never of counts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.figures import Figure, distribution_json, figure, figure_json, rounded
from headway.lab.latency import e2e_ns, tpot_ns, ttft_ns
from headway.lab.warm_up import WarmUp

Key = TypeVar("Key")

_NONE = WarmUp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The figures of some of a run's requests."""

    num_offered: int
    num_ok: int
    ttft: Figure
    tpot: Figure
    e2e: Figure
    prompt_tokens: Distribution
    """Of requests that succeeded, as usage says; no samples = it does not."""
    cached_share: float | None
    """Of these prompt tokens, those that the server had cached, from 0 to 1; None = it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByCache:
    """TTFT with none and with some of the prompt cached, of the requests that succeeded and whose usage says it."""

    cold: Distribution
    cached: Distribution
    cached_share: float | None
    """As in `Part`."""


def part(exchanges: Sequence[Exchange], warm_up: WarmUp = _NONE) -> Part:
    """Return the figures of `exchanges`."""
    kept = [exchange for exchange in exchanges if warm_up.keeps(exchange)]
    return Part(
        num_offered=len(exchanges),
        num_ok=sum(exchange.ok for exchange in exchanges),
        ttft=figure(ttft_ns, kept),
        tpot=figure(tpot_ns, kept),
        e2e=figure(e2e_ns, kept),
        prompt_tokens=prompt_tokens(exchanges),
        cached_share=cached_share(exchanges),
    )


def by_turn(exchanges: Sequence[Exchange], warm_up: WarmUp = _NONE) -> dict[int, Part]:
    """Return the figures of each turn, in order; none where no conversation goes on after its first."""
    turns = _grouped(exchanges, lambda exchange: exchange.turn)
    if all(turn == 1 for turn in turns):
        return {}
    return {turn: part(turns[turn], warm_up) for turn in sorted(turns)}


def by_label(exchanges: Sequence[Exchange], warm_up: WarmUp = _NONE) -> dict[str, Part]:
    """Return the figures of each part of a workload, lengths of context in rising order; none where there is one part."""
    labels = _grouped(exchanges, lambda exchange: exchange.label)
    ordered = sorted(labels, key=lambda label: (context_tokens(label) or 0, label))
    return {label: part(labels[label], warm_up) for label in ordered} if len(labels) > 1 else {}


def context_tokens(label: str) -> int | None:
    """Return the length that a label such as `context:2048` names; None of another label."""
    match = re.fullmatch("context:([0-9]+)", label)
    return int(match[1]) if match else None


def by_cache(exchanges: Sequence[Exchange], warm_up: WarmUp = _NONE) -> ByCache | None:
    """Return TTFT cold and with cached tokens; None where usage never says which it was."""
    told = [exchange for exchange in exchanges if exchange.ok and exchange.cached_tokens is not None]
    if not told:
        return None
    kept = [exchange for exchange in told if warm_up.keeps(exchange)]
    return ByCache(
        cold=figure(ttft_ns, [exchange for exchange in kept if not exchange.cached_tokens]).successes,
        cached=figure(ttft_ns, [exchange for exchange in kept if exchange.cached_tokens]).successes,
        cached_share=cached_share(told),
    )


def prompt_tokens(exchanges: Sequence[Exchange]) -> Distribution:
    """Return how long the prompts of successes were, as usage says."""
    usages = [exchange.answer.usage for exchange in exchanges if exchange.ok]
    return describe([usage.prompt_tokens for usage in usages if usage and usage.prompt_tokens is not None])


def cached_share(exchanges: Sequence[Exchange]) -> float | None:
    """Return the share of prompt tokens of successes that were cached; None where usage does not say both."""
    total = cached = 0
    for exchange in exchanges:
        usage = exchange.answer.usage
        if exchange.ok and usage and usage.prompt_tokens is not None and usage.cached_tokens is not None:
            total += usage.prompt_tokens
            cached += min(usage.cached_tokens, usage.prompt_tokens)
    return cached / total if total else None


def by_turn_json(parts: Mapping[int, Part]) -> list[dict[str, object]]:
    """Return turns as JSON's types."""
    return [{"turn": turn, **part_json(found)} for turn, found in parts.items()]


def by_label_json(parts: Mapping[str, Part]) -> list[dict[str, object]]:
    """Return parts of the workload as JSON's types."""
    return [
        {"label": label, "context_tokens": context_tokens(label), **part_json(found)}
        for label, found in parts.items()
    ]


def by_cache_json(found: ByCache | None) -> dict[str, object] | None:
    """Return both kinds as JSON's types."""
    if found is None:
        return None
    return {
        "cold": {"n": found.cold.n, "ttft_ms": distribution_json(found.cold)},
        "cached": {"n": found.cached.n, "ttft_ms": distribution_json(found.cached)},
        "cached_share": rounded(found.cached_share),
    }


def part_json(found: Part) -> dict[str, object]:
    """Return a part as JSON's types."""
    return {
        "offered": found.num_offered,
        "n": found.num_ok,
        "ttft_ms": figure_json(found.ttft),
        "tpot_ms": figure_json(found.tpot),
        "e2e_ms": figure_json(found.e2e),
        "prompt_tokens": distribution_json(found.prompt_tokens),
        "cached_share": rounded(found.cached_share),
    }


def _grouped(exchanges: Sequence[Exchange], key: Callable[[Exchange], Key]) -> dict[Key, list[Exchange]]:
    groups: dict[Key, list[Exchange]] = {}
    for exchange in exchanges:
        groups.setdefault(key(exchange), []).append(exchange)
    return groups
