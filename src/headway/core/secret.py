"""A text that must never be printed: not in a log, an error, a traceback's locals or anything that is serialised."""

import hmac


class Secret:
    """Holds a text that only `reveal` gives back. Comparing two takes as long whatever they share; there is no
    hash."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")
