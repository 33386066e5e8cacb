"""How many tokens a text has, by its characters: as many to a token as the server finds in samples, or an assumption."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal

from headway.core.errors import ConfigError

TokenCounter = Callable[[str], int]

CHARS_PER_TOKEN = 3.5
"""Of Python code in vocabularies of 32,000 to 150,000 tokens; only for want of a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEstimate:
    """What texts are measured with. `source`: `server` = samples were counted by its tokenizer, `assumed` = nobody could."""

    chars_per_token: float = CHARS_PER_TOKEN
    source: Literal["server", "assumed"] = "assumed"


def estimated(chars_per_token: float = CHARS_PER_TOKEN) -> TokenCounter:
    """Return a counter that divides characters by `chars_per_token`, rounding up; raises ConfigError unless over 0."""
    if not 0 < chars_per_token < 1e6:
        raise ConfigError(f"Characters per token must be a number over 0, not {chars_per_token}.")
    return lambda text: ceil(len(text) / chars_per_token)
