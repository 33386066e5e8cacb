"""Finds a peer's best configuration: one setting after another, each value tried with the best of the others so far.

Of two measurements of a value the faster counts: disturbances only slow things down. All tries are kept.
"""

from collections.abc import Callable
from typing import Any

from peers.cases import Axes, Settings

TRIES = 2

Measure = Callable[[Settings], list[float]]
"""Returns tokens a second of each try; an empty list if the peer refuses the settings."""


class AllRefused(Exception):
    """The peer refuses every configuration; `tried` has them."""

    def __init__(self, tried: list[dict[str, Any]]) -> None:
        super().__init__("every configuration was refused")
        self.tried = tried


def sweep(axes: Axes, measure: Measure) -> tuple[Settings, list[dict[str, Any]]]:
    """Return the best settings and what was tried, in order; raises AllRefused."""
    best: Settings = {name: values[0] for name, values in axes.items()}
    tried: list[dict[str, Any]] = []

    def speed(settings: Settings) -> float:
        for attempt in tried:
            if attempt["settings"] == settings:
                return max(attempt["tok_s"], default=0.0)
        tok_s = measure(settings)
        tried.append({"settings": settings, "tok_s": tok_s})
        return max(tok_s, default=0.0)

    for name, values in axes.items():
        if len(values) > 1:
            best[name] = max(values, key=lambda value, name=name: speed(best | {name: value}))  # type: ignore[misc]
    if speed(best) == 0.0:
        raise AllRefused(tried)
    return best, tried
