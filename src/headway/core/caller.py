"""Who calls, as far as everything behind the door needs to know: for whom to account, how urgently, within which limits."""

from typing import Literal

import msgspec

from headway.core.request import ServiceClass

Kind = Literal["admin", "user", "service"]
"""What a token is for: it decides which latency is worth an alarm."""


class CallerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A caller's own limits; None = the server's default.

    requests_per_s   while the caller behaves
    tokens_per_min   of prompts and answers together
    max_concurrent   calls at once
    """

    requests_per_s: float | None = None
    tokens_per_min: int | None = None
    max_concurrent: int | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whose requests are taken.

    token_id   public name of what he showed, safe to log and to count by; "" = nobody was asked to show anything
    tenant     whom tokens are accounted to and whose prefix cache is used; "" is the default tenant
    user       whose behaviour the rate follows, unique within the tenant
    """

    token_id: str = ""
    tenant: str = ""
    user: str = ""
    service_class: ServiceClass = "normal"
    kind: Kind = "user"
    limits: CallerLimits = CallerLimits()

    @property
    def account(self) -> tuple[str, str, str]:
        """Whose rate, budget, places and standing a call counts on: (tenant, user, token), the last "" for the user's own.

        A token that has limits of its own has an account of its own: in one account the smaller of two budgets would cut
        down what the larger one had left.
        """
        return (self.tenant, self.user, "" if self.limits == CallerLimits() else self.token_id)


NOBODY = Caller()
"""Nobody in particular: where nobody is asked who he is, everybody is."""
