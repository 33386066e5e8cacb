"""Whether two runs, or the two sides of a comparison, measured the same thing. Pure functions that return sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.lab.exchange import Exchange
from headway.lab.tokens import common_source, token_counts

MOST_APART = 0.1
"""A tenth of the longer answers, or of the prompts, is more than chance does to runs that were asked the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What two runs should share to be compared. None: not known."""

    name: str
    """How sentences call the run."""
    asked: Mapping[str, object] = field(default_factory=dict)
    tokens_by: str | None
    tokens_per_answer: float | None
    cached_share: float | None
    """Prompt tokens that the server had in its cache ÷ prompt tokens, where usage tells both."""
    num_failed: int
    num_offered: int
    num_others: int | None = None
    """Requests that the server answered to others meanwhile, by its own metrics."""
    believable: bool = True
    interrupted: bool = False


def unlike(a: Traits, b: Traits) -> tuple[str, ...]:
    """Return what makes figures of the two differ that is no difference of servers, a sentence each."""
    return tuple(_unlike(a, b))


def cached_share(exchanges: Sequence[Exchange]) -> float | None:
    """Return the share of prompt tokens that came from the server's cache; None where usage does not tell."""
    usages = [exchange.answer.usage for exchange in exchanges if exchange.answer.usage is not None]
    known = [
        (usage.cached_tokens, usage.prompt_tokens)
        for usage in usages
        if usage.cached_tokens is not None and usage.prompt_tokens
    ]
    return sum(cached for cached, _ in known) / sum(prompt for _, prompt in known) if known else None


def tokens_by(exchanges: Sequence[Exchange]) -> str | None:
    """Return what tokens were counted by, as a summary's `tokens_by`."""
    return common_source(token_counts(exchange) for exchange in exchanges if exchange.ok)


def _unlike(a: Traits, b: Traits) -> Iterator[str]:
    names = f"{a.name} and {b.name}"
    differing = [
        f"{key.replace('_', ' ')} ({a.asked[key]}, {b.asked[key]})"
        for key in a.asked
        if key in b.asked and a.asked[key] != b.asked[key]
    ]
    if differing:
        yield f"{names} were not asked alike: {', '.join(differing)}."
    for run in (a, b):
        if not run.believable:
            yield f"Do not believe {run.name}: its client sent too late."
        if run.interrupted:
            yield f"{run.name} was interrupted."
        if run.num_others:
            yield f"The server answered {run.num_others:,} requests of others during {run.name}."
    if a.num_failed or b.num_failed:
        told = " and ".join(f"{run.num_failed} of {run.num_offered} in {run.name}" for run in (a, b))
        yield f"Latencies are those of requests that succeeded; failed: {told}."
    if a.tokens_by != b.tokens_by and None not in (a.tokens_by, b.tokens_by):
        yield f"Tokens were counted by {a.tokens_by} in {a.name} and by {b.tokens_by} in {b.name}."
    longs = (a.tokens_per_answer, b.tokens_per_answer)
    if None not in longs and _apart(longs) > MOST_APART * max(each or 0 for each in longs):
        yield f"Answers had {longs[0]:.3g} tokens on average in {a.name} and {longs[1]:.3g} in {b.name}."
    cached = (a.cached_share, b.cached_share)
    if None not in cached and _apart(cached) > MOST_APART:
        yield (
            f"Of prompt tokens {cached[0]:.0%} came from the server's cache in {a.name} and {cached[1]:.0%} in {b.name}."
        )


def _apart(two: tuple[float | None, float | None]) -> float:
    return abs((two[0] or 0) - (two[1] or 0))
