"""How many calls a caller has at once. It knows no clock and no caller."""


class Gate:
    """Owns which calls are in, by id: one that ends twice, as its end is told again when an answer was lost, leaves once."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def has_room(self, max_concurrent: int | None) -> bool:
        """Whether one more may come in; None = as many as like."""
        return max_concurrent is None or len(self._ids) < max_concurrent

    def enter(self, call_id: str) -> None:
        """A call came in."""
        self._ids.add(call_id)

    def leave(self, call_id: str) -> None:
        """A call left, or had left already."""
        self._ids.discard(call_id)
