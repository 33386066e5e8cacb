"""Token ids to text as they arrive, byte-exact: a character is given out when its last byte is there.

Whatever the split of the ids, the text is the same as `bytes.decode(errors="replace")` of all their bytes. It knows no
stop strings (`stop_strings`), no tokenizer internals and no sockets.
"""

import codecs
from collections.abc import Collection
from typing import Protocol

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TokenBytes(Protocol):
    """What a detokenizer needs to know of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is control rather than text."""
        ...


class Detokenizer:
    """The text of one sequence. `skip_special`: special tokens but those of `shown` give no text, otherwise their name."""

    def __init__(
        self, tokenizer: TokenBytes, *, skip_special: bool = True, shown: Collection[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = shown
        self._decoder = _new_decoder(errors="replace")
        self._is_within = False  # the decoder holds a part of a character

    def push(self, token_id: int) -> str:
        """Take a token and return the text that is certain now; raises IndexError for an unknown id."""
        if self._skip_special and self._tokenizer.is_special(token_id) and token_id not in self._shown:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if not self._is_within and data.isascii():  # nearly always: the decoder would take six times as long
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self._is_within = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """Return what is left when no more tokens come: U+FFFD for a character that stayed incomplete, else ""."""
        return self._decoder.decode(b"", final=True)
