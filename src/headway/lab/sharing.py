"""How a server divided itself between streams that all had work waiting: service over time, shares, Jain's index.

Service is what Sheng et al. count ("Fairness in serving large language models", arXiv 2401.00588): prompt tokens that had to
be computed, weight 1, and output tokens, weight 2. It is counted when it shows: prompts when their first token came, output
tokens when they did. Only windows count in which every stream was backlogged (`lab/backlog.py`): whoever asks for less than
its share is no victim. Pure functions over exchanges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.clock import NS_PER_S
from headway.lab.arrival_table import arrival_table
from headway.lab.backlog import Span, common, waiting_spans, windows
from headway.lab.exchange import Exchange
from headway.lab.figures import rounded

WINDOW_NS = 5 * NS_PER_S
"""Over which a server is held to its shares."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a token counts: of a prompt, not cached, and of an answer."""

    prompt: float
    output: float


VTC = Weights(1.0, 2.0)
TOKENS = Weights(1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What streams got, over the windows in which all were backlogged, together and one by one."""

    num_windows: int
    jain: float | None
    """Of service over all windows together; None = there was no such window, or no service in it."""
    jain_windows: tuple[float, ...]
    """Of each window's, where there was service."""
    service_shares: Mapping[str, float]
    """Of service in all windows; empty = none."""
    token_shares: Mapping[str, float]
    """Of tokens computed, prompts' and answers' alike."""
    token_share_ranges: Mapping[str, tuple[float, float]]
    """The least and the most of a window."""
    num_untold: int
    """Answers whose usage does not tell the prompt, which therefore counts nothing."""


def sharing(streams: Mapping[str, Sequence[Exchange]], window_ns: int = WINDOW_NS) -> Sharing:
    """Return how streams, by name, were served."""
    spans = common([waiting_spans(exchanges) for exchanges in streams.values()])
    cut = windows(spans, window_ns)
    service = np.array([service_within(exchanges, cut, VTC) for exchanges in streams.values()])
    tokens = np.array([service_within(exchanges, cut, TOKENS) for exchanges in streams.values()])
    by_window = [jain_index(window) for window in service.reshape(len(streams), len(cut)).T.tolist()]
    totals = tokens.reshape(len(streams), len(cut)).sum(axis=0)
    ranges = {}
    if len(cut) and (totals > 0).any():
        each = tokens[:, totals > 0] / totals[totals > 0]
        ranges = {name: (float(row.min()), float(row.max())) for name, row in zip(streams, each, strict=True)}
    told = [exchange for exchanges in streams.values() for exchange in exchanges if exchange.text_events]
    return Sharing(
        num_windows=len(cut),
        jain=jain_index(service.sum(axis=1).tolist()),
        jain_windows=tuple(index for index in by_window if index is not None),
        service_shares=shares_of(dict(zip(streams, service.sum(axis=1).tolist(), strict=True))),
        token_shares=shares_of(dict(zip(streams, tokens.sum(axis=1).tolist(), strict=True))),
        token_share_ranges=ranges,
        num_untold=sum(computed_tokens(exchange) is None for exchange in told),
    )


def service_within(exchanges: Sequence[Exchange], cut: Sequence[Span], weights: Weights) -> list[float]:
    """Return the service of `exchanges` in each window, failed ones as far as they got."""
    table = arrival_table(exchanges)
    first_ns, computed = [], []
    for exchange in exchanges:
        if (prompt := computed_tokens(exchange)) is not None and exchange.text_events:
            first_ns.append(exchange.text_events[0].at_ns)
            computed.append(prompt)
    at_ns = np.concatenate([table.at_ns, np.asarray(first_ns, dtype=np.int64)])
    amounts = np.concatenate([weights.output * table.num_tokens, weights.prompt * np.asarray(computed)])
    order = np.argsort(at_ns, kind="stable")
    until = np.concatenate([[0.0], np.cumsum(amounts[order])])
    places = np.searchsorted(at_ns[order], np.asarray(cut, dtype=np.int64).reshape(-1, 2), side="left")
    return [float(until[end] - until[start]) for start, end in places]


def computed_tokens(exchange: Exchange) -> int | None:
    """Return the prompt tokens that were not cached, as usage says; one that tells no cached tokens had none."""
    usage = exchange.answer.usage
    if usage is None or usage.prompt_tokens is None:
        return None
    return max(0, usage.prompt_tokens - (usage.cached_tokens or 0))


def jain_index(amounts: Sequence[float]) -> float | None:
    """Return (Σ x)² ÷ (n Σ x²): 1 = all got the same, 1/n = one got all. None = nobody got anything.

    R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
    computer systems", DEC-TR-301, 1984.

    >>> jain_index([3.0, 3.0, 3.0])
    1.0
    >>> jain_index([1.0, 0.0, 0.0, 0.0])
    0.25
    """
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else None


def shares_of(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return each amount ÷ their sum; empty where that is 0."""
    total = sum(amounts.values())
    return {name: amount / total for name, amount in amounts.items()} if total else {}


def sharing_json(found: Sharing | None, window_ns: int = WINDOW_NS) -> dict[str, object] | None:
    """Return it as JSON's types."""
    if found is None:
        return None
    return {
        "window_s": window_ns / NS_PER_S,
        "windows": found.num_windows,
        "jain": rounded(found.jain),
        "jain_least": rounded(min(found.jain_windows, default=None)),
        "service_shares": {name: rounded(share) for name, share in found.service_shares.items()},
        "token_shares": {name: rounded(share) for name, share in found.token_shares.items()},
        "token_share_ranges": {
            name: [rounded(end) for end in ends] for name, ends in found.token_share_ranges.items()
        },
        "untold": found.num_untold,
    }
