"""How an error quotes what a file says: as Python writes it, so without control characters, and never long."""

from reprlib import Repr

_MAX_CHARS = 80

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _MAX_CHARS


def quoted(value: object) -> str:
    """Return a value of any type; a long one loses its middle or end, however much it holds."""
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."
