"""Counting the most frequent items of an endless stream in bounded memory: Space-Saving.

A. Metwally, D. Agrawal, A. El Abbadi: Efficient computation of frequent and top-k elements in data streams (ICDT 2005).
With m counters every item that makes up more than 1/m of the stream is among them, and a count is too high by at most the
error kept beside it. Every step takes constant time: items lie in buckets by count, as in the paper's Stream-Summary.
"""


class SpaceSaving:
    """Counts of at most `capacity` items (1 or more)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._counts: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self._buckets: dict[int, dict[str, None]] = {}
        """Count → its items, the one longest there first."""
        self._least = 0
        """No item counts less."""

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def is_full(self) -> bool:
        """Whether a new item takes the place of another."""
        return len(self._counts) >= self._capacity

    def add(self, item: str) -> None:
        """Count `item` once; if there is no place for it, it takes the one of an item that counts least, and its count."""
        count = self._counts.get(item)
        if count is not None:
            self._leave_bucket(item, count)
            self._put(item, count + 1)
            return
        if not self.is_full:
            self._least = 1
            self._put(item, 1)
            return
        while self._least not in self._buckets:
            self._least += 1
        error = self._least
        out = next(iter(self._buckets[error]))
        self._leave_bucket(out, error)
        del self._counts[out]
        self._errors.pop(out, None)
        self._errors[item] = error
        self._put(item, error + 1)

    def guaranteed(self, item: str) -> int:
        """Return how often `item` came at least, since its counts began."""
        return self._counts.get(item, 0) - self._errors.get(item, 0)

    def halve(self) -> None:
        """Forget half of every count, and items of which nothing is left: what came lately shall weigh more."""
        counts, errors = self._counts, self._errors
        self._counts, self._buckets = {}, {}
        # Rounded up, and counts down, so that what is guaranteed stays so. An error is less than its count.
        self._errors = {item: (error + 1) // 2 for item, error in errors.items()}
        self._least = 1
        for item, count in counts.items():
            if count > 1:
                self._put(item, count // 2)

    def _put(self, item: str, count: int) -> None:
        self._counts[item] = count
        self._buckets.setdefault(count, {})[item] = None

    def _leave_bucket(self, item: str, count: int) -> None:
        bucket = self._buckets[count]
        del bucket[item]
        if not bucket:
            del self._buckets[count]
