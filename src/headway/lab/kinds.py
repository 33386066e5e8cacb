"""Requests of different kinds on one scale: how much longer each took than is usual for its kind. A pure function."""

from collections.abc import Hashable, Sequence

import numpy as np

from headway.lab.distribution import Floats


def relative_to_kind(values: Floats, kinds: Sequence[Hashable]) -> Floats:
    """Return each of the positive `values` divided by the median of those of its kind."""
    members: dict[Hashable, list[int]] = {}
    for number, kind in enumerate(kinds):
        members.setdefault(kind, []).append(number)
    relative = np.empty(len(values))
    for numbers in members.values():
        relative[numbers] = values[numbers] / np.median(values[numbers])
    return relative
