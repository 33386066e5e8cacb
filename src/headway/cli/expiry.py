"""How long something is to last, as `--expires` says it: `90d` from now on, or until a date. It reads no clock."""

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_UNITS_S: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MAX_S: Final = 100 * 366 * 86_400
"""A century: whoever wants more wants no end."""
_SPAN: Final = re.compile(r"([0-9]{1,9})([mhdw])")


@dataclass(frozen=True, slots=True)
class Expiry:
    """A time in whole seconds: `s` after now, or since 1970 where it is absolute."""

    s: int
    is_absolute: bool

    def at_s(self, now_s: int) -> int:
        """Return the time in seconds since 1970."""
        return self.s if self.is_absolute else now_s + self.s


def expiry(text: str) -> Expiry:
    """Parse `30m`, `12h`, `90d`, `4w`, or a date or time of ISO 8601 (in UTC, if it is silent); raises ArgumentTypeError."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        s = int(span[1]) * _UNITS_S[span[2]]
        if not 0 < s <= _MAX_S:
            raise argparse.ArgumentTypeError(f"{text!r} is no time, or more than a century")
        return Expiry(s, is_absolute=False)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time such as 12h, 90d or 4w nor a date such as 2030-01-31"
        ) from None
    return Expiry(int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()), is_absolute=True)
