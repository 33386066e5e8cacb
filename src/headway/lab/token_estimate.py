"""How many tokens a text has: by a counter of the model's own, or by characters where there is none."""

from collections.abc import Callable, Iterable
from math import ceil

from headway.core.errors import ConfigError

TokenCounter = Callable[[str], int]

CHARS_PER_TOKEN = 3.5
"""Of Python code in vocabularies of 32,000 to 150,000 tokens; only for want of a measurement: see `calibrated`."""


def estimated(chars_per_token: float = CHARS_PER_TOKEN) -> TokenCounter:
    """Return a counter that divides characters by `chars_per_token`, rounding up; raises ConfigError unless over 0."""
    if not 0 < chars_per_token < 1e6:
        raise ConfigError(f"Characters per token must be a number over 0, not {chars_per_token}.")
    return lambda text: ceil(len(text) / chars_per_token)


def calibrated(samples: Iterable[str], count: TokenCounter) -> TokenCounter:
    """Return an estimate fitted to `count`, which is asked once per sample: it may be a server's tokenizer, slow to ask.

    Raises ConfigError when the samples have no tokens.
    """
    num_chars = num_tokens = 0
    for sample in samples:
        num_chars += len(sample)
        num_tokens += count(sample)
    if num_chars < 1 or num_tokens < 1:
        raise ConfigError("Tokens cannot be estimated from samples without any.")
    return estimated(num_chars / num_tokens)
