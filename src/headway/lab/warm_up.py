"""Where a run's warm-up ends, by a rule instead of by eye. A pure function over latencies in the order of their starts."""

from collections.abc import Sequence

import numpy as np

BATCH = 5
"""Samples averaged to one point, as in MSER-5: single latencies are too noisy to cut at."""
LEAST_BATCHES = 4
"""With fewer there is nothing to judge by."""


def warm_up_length(samples: Sequence[float]) -> int | None:
    """Return how many of the first samples to leave out, a multiple of `BATCH`; None if the run does not become steady.

    MSER-5 (White, Cobb and Spratt, Winter Simulation Conference 2000): cut where the standard error of the mean of what
    remains is smallest, looking at the first half of the run alone, as the end of a run is short enough to look steady by
    chance. The smallest at the end of that half says that the latency was still moving. Of a run of fewer than
    `LEAST_BATCHES` batches nothing is left out. Raises ValueError for a sample that is not finite.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a sample is not finite")
    num_batches = len(values) // BATCH
    if num_batches < LEAST_BATCHES:
        return 0
    means = values[: num_batches * BATCH].reshape(num_batches, BATCH).mean(axis=1)
    half = num_batches // 2
    errors = [means[cut:].var() / (num_batches - cut) for cut in range(half + 1)]
    best = int(np.argmin(errors))
    return None if best == half else best * BATCH
