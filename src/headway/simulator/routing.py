"""Which replica a request goes to: pure decisions. A conversation stays where its first request went, as its KV does."""

from collections.abc import Sequence
from typing import Literal, get_args

from headway.core.errors import ConfigError

Route = Literal["least-loaded", "round-robin"]
ROUTES: tuple[Route, ...] = get_args(Route)


class Router:
    """Owns where conversations are, and whose turn it is."""

    def __init__(self, route: Route, num_replicas: int) -> None:
        """Raises ConfigError without a replica."""
        if num_replicas < 1:
            raise ConfigError("A simulation needs at least one replica.")
        self._route = route
        self._num_replicas = num_replicas
        self._next = 0
        self._homes: dict[int, int] = {}

    def choose(self, conversation: int, loads: Sequence[int]) -> int:
        """Return the replica for a request of `conversation`; `loads`: open requests of each, of which the first least."""
        home = self._homes.get(conversation)
        if home is None:
            if self._route == "round-robin":
                home = self._next
                self._next = (home + 1) % self._num_replicas
            else:
                home = min(range(self._num_replicas), key=loads.__getitem__)
            self._homes[conversation] = home
        return home

    def forget(self, conversation: int) -> None:
        """A conversation is over."""
        self._homes.pop(conversation, None)
