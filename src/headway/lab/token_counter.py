"""Counts the tokens of answers with the model's own tokenizer, where the server's usage is missing."""

from pathlib import Path

from tokenizers import Tokenizer

from headway.core.errors import ConfigError
from headway.lab.token_estimate import TokenCounter


def token_counter(path: Path) -> TokenCounter:
    """Return a counter by a tokenizer.json; raises ConfigError for a file that is none.

    A chunk is counted by itself: what a tokenizer would merge with the chunk before is counted as two.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # which the package raises, of no narrower kind
        raise ConfigError(f"{path} is no tokenizer.json: {error}.") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
