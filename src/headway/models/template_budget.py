"""What one rendering of a chat template may use up. Values have a weight, and whatever makes a value pays for it.

A unit is a character, or a sixteenth of anything else that is made or done: a list's element, an operation, a turn of a
loop. It takes at most four bytes. The time is a second limit, for what is slow without making anything.
"""

import time
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any, Final

from jinja2.exceptions import SecurityError

BASE_UNITS: Final = 64 * 1024 * 1024
"""What every rendering may use: 256 MiB at most, or about four million operations (a few seconds)."""
UNITS_PER_UNIT: Final = 32
"""What it may use for each unit of the request: templates touch each message's text some ten times."""
MAX_SECONDS: Final = 30.0
OBJECT: Final = 16
"""Units of an object or operation: 64 bytes, about a microsecond."""
CALL: Final = 8 * OBJECT
"""Units of a call: a macro's takes five to ten microseconds."""

_REPR: Final = 10  # repr() writes a character as up to ten


class Budget:
    """The budget of one rendering."""

    def __init__(self, request: object, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """`request`: the values that the template is given."""
        self._monotonic_s = monotonic_s
        self._end_s = monotonic_s() + MAX_SECONDS
        self._left = BASE_UNITS + UNITS_PER_UNIT * self.weight(request, bounded=False)

    def charge(self, units: int) -> None:
        """Pay for what is about to be made or done; raises SecurityError if the budget does not allow it."""
        self._left -= units
        if self._left < 0:
            raise SecurityError("it makes or does more than a chat template may")
        if self._monotonic_s() > self._end_s:
            raise SecurityError(f"it takes longer than {MAX_SECONDS:.0f} seconds")

    def weight(self, value: object, *, bounded: bool = True) -> int:
        """Return a value's units, counting what it holds as often as it is held; raises SecurityError beyond the budget."""
        total = 0
        stack = [value]
        while stack:
            item = stack.pop()
            total += OBJECT
            if isinstance(item, (str, bytes)):
                total += len(item)
            elif isinstance(item, int):
                total += item.bit_length() >> 3
            elif isinstance(item, dict):
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)):
                stack.extend(item)
            if bounded and total > self._left:
                raise SecurityError("it makes or does more than a chat template may")
        return total

    def text(self, value: object) -> str:
        """Return a value as text, paid for."""
        if not isinstance(value, str):
            self.charge(self.text_units(value))
            return str(value)
        self.charge(len(value))
        return value

    def text_units(self, value: object) -> int:
        """Return an upper bound of the length of a value as text."""
        weight = self.weight(value)
        return weight if isinstance(value, str) else weight * _REPR

    def paid(self, value: Any) -> Any:
        """Return a value that was just made, paid for."""
        self.charge(self.weight(value))
        return value
