"""How much of a limit is left: what a caller is told with every answer. It knows no HTTP."""

import msgspec


class Quota(msgspec.Struct, frozen=True):
    """One limit as it stands.

    limit      most that can be had at once
    remaining  of it, rounded down, from 0
    reset_ns   until all of it can be had again if nothing more is taken
    """

    limit: int
    remaining: int
    reset_ns: int


class Quotas(msgspec.Struct, frozen=True):
    """A caller's limits; None = he has none of that kind."""

    requests: Quota | None = None
    tokens: Quota | None = None


NO_QUOTAS = Quotas()
