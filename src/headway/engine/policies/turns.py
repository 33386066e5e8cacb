"""Whose turn it is, of classes by their shares and of tenants by what they were served. It knows neither queue nor engine.

Pure functions of numbers, so that the engine's scheduler and the gateway's gate before remote engines decide alike.
"""

from collections.abc import Iterable, Mapping, Sequence


def next_rank(waiting: Iterable[int], use: Sequence[float]) -> int:
    """Return which of the waiting classes is next: the best within its share, else the one that exceeds its least.

    use   what each class has had, by rank, over its share (`Accounts.use`)
    """
    return min(waiting, key=lambda rank: (use[rank] >= 1, rank if use[rank] < 1 else use[rank]))


def equals(served: Mapping[str, int], lead: float) -> list[str]:
    """Return the tenants that count as equals of the one served least: those ahead of it by no more than `lead`."""
    most = min(served.values()) + lead
    return [name for name, had in served.items() if had <= most]
