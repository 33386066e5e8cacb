"""Headers that a run sends besides the lab's own: reading them, and which of them say to Headway who asks and how urgently.

Values may be secrets: no message quotes one, and only those of `x-headway-` headers are ever shown.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from headway.core.errors import ConfigError

Headers = tuple[tuple[str, str], ...]
"""Names in lower case, each once, and their values, in the order in which they are sent."""

SESSION: Final = "x-headway-session"

_OURS: Final = "x-headway-"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
"""A token of RFC 9110, 5.6.2, in lower case."""
_SET_BY_THE_LAB: Final = frozenset(
    ("host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "user-agent")
)


def parse_header(text: str) -> tuple[str, str]:
    """Read `name: value`; raises ConfigError, which does not quote the value."""
    name, colon, value = text.partition(":")
    if not colon:
        raise ConfigError("A header is written as 'name: value'.")
    return checked_header(name.strip(), value.strip())


def checked_header(name: str, value: str) -> tuple[str, str]:
    """Return a header as it is sent; raises ConfigError for what HTTP does not allow, or what the lab sets itself."""
    lower = name.lower()
    if _NAME.fullmatch(lower) is None:
        raise ConfigError(f"{name!r} is no name of a header.")
    if lower in _SET_BY_THE_LAB:
        raise ConfigError(f"The lab sets the header {lower} itself.")
    if not value or not value.isascii() or not value.isprintable():
        raise ConfigError(f"The value of the header {lower} must be printable ASCII characters.")
    return lower, value


def check_session(headers: Headers, session: str | None) -> None:
    """Raise ConfigError where conversations name themselves and a header would name them, too."""
    if session is not None and SESSION in dict(headers):
        raise ConfigError(f"Conversations are named by --sessions or by the header {SESSION}, not by both.")


def joined(*parts: Iterable[tuple[str, str]]) -> Headers:
    """Return all headers; a later one replaces an earlier one of its name."""
    return tuple({name: value for part in parts for name, value in part}.items())


def shown(headers: Headers) -> Mapping[str, str | None]:
    """Return names with the values that may be shown; None stands for one that may not."""
    return {name: value if name.startswith(_OURS) else None for name, value in headers}
