"""`GET /v1/profile`: what a program needs to build prompts for a model that stay in its prefix cache.

Role and domain are the operator's (`gateway.profile` reads them from a file), so that programs need not keep them; the
window is the model's. All of it stands still while the server runs: it goes into the part of a prompt that never changes.
"""

from typing import Annotated, Final, Literal

import msgspec

MAX_PROFILE_CHARS: Final = 16_384
"""Of the role, and of the domain: some 4,000 tokens in front of every prompt, more than any published system prompt."""
DEFAULT_HIGH_WATER: Final = 0.75
"""Share of the window. What is left has to hold an answer and the question that passes the mark; a lower mark compacts
sooner, and each compaction costs most of the cached prefix."""


class ProfileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator says.

    role         who answers: the first words of the system message; "" = nothing
    domain       what conversations are about, behind the role
    high_water   share of the window, above 0 and below 1, beyond which a conversation should be compacted
    """

    role: Annotated[str, msgspec.Meta(max_length=MAX_PROFILE_CHARS)] = ""
    domain: Annotated[str, msgspec.Meta(max_length=MAX_PROFILE_CHARS)] = ""
    high_water: Annotated[float, msgspec.Meta(gt=0, lt=1)] = DEFAULT_HIGH_WATER


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `window_tokens`: most tokens of a prompt and its answer; None = the engine has not started yet."""

    object: Literal["profile"] = "profile"
    model: str
    role: str = ""
    domain: str = ""
    window_tokens: int | None = None
    high_water: float = DEFAULT_HIGH_WATER
