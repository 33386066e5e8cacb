"""Reads one call as models write it, a JSON object with a name and arguments, character by character.

The object is `{"name": …, "arguments": {…}}`, its fields in any order; "parameters" is another word for "arguments", and
other fields are skipped. The envelope is read strictly. Arguments are passed on exactly as written, up to the bracket that
closes them, whether they are valid JSON inside or not: OpenAI's API promises no more. Arguments written as a string of
JSON, as some models do, are passed on decoded; null, or none at all, means an empty object.

It knows neither markers nor what surrounds the object.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

import msgspec

_ARGUMENTS: Final = ("arguments", "parameters")
_KNOWN: Final = (*_ARGUMENTS, "name", "function", "type", "id")
"""The keys of calls without a marker: an answer in JSON with any other key is none, and need not be held back."""
_SPACE: Final = " \t\r\n"
_LONGEST_ESCAPE: Final = len(r"\ud83d\ude00")


class Progress(Enum):
    """What a character did to the object: it goes on, it is complete, or it cannot be a call any more."""

    MORE = 1
    DONE = 2
    BROKEN = 3


class CallReader:
    """One call. Give it what follows the opening brace.

    names   the functions that may be called; another name breaks the object
    eager   the object certainly is meant as a call: it has started once its name is known, not only when its arguments
            begin, and its other keys do not matter
    """

    def __init__(self, names: Collection[str], *, eager: bool) -> None:
        self._names = names
        self._eager = eager
        self._step: Callable[[str], Progress] = self._before_key
        self._name: str | None = None
        self._key = ""
        self._raw: list[str] = []  # of the string or word that is being read, without quotes
        self._arguments: list[str] = []  # not taken yet
        self._has_arguments = False
        self._depth = 0  # open brackets of the value that is being read
        self._in_string = False  # within that value
        self._escaped = False

    @property
    def started(self) -> bool:
        """Whether this certainly is a call, and its name is known."""
        return self._name is not None and (self._eager or self._has_arguments)

    @property
    def name(self) -> str:
        """The function's name; only once the call has started."""
        assert self._name is not None, "not started"
        return self._name

    def push(self, char: str) -> Progress:
        """Take the next character. After DONE or BROKEN none may follow."""
        return self._step(char)

    def take_arguments(self) -> str:
        """Return the text that the arguments gained since this was last called."""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def flush(self) -> None:
        """No more text comes: release the arguments that wait for the end of a string."""
        if self._step == self._in_arguments_string:
            self._arguments.append(_decode_beginning("".join(self._raw)))

    def _before_key(self, char: str) -> Progress:
        if char in _SPACE:
            return Progress.MORE
        if char == '"':
            return self._begin_string(self._in_key)
        return self._end() if char == "}" else Progress.BROKEN

    def _in_key(self, char: str) -> Progress:
        if self._string_goes_on(char):
            return Progress.MORE
        key = _decode("".join(self._raw))
        if key is None or not (self._eager or key in _KNOWN):
            return Progress.BROKEN
        self._key = key
        self._step = self._before_colon
        return Progress.MORE

    def _before_colon(self, char: str) -> Progress:
        if char in _SPACE:
            return Progress.MORE
        if char != ":":
            return Progress.BROKEN
        self._step = self._before_value
        return Progress.MORE

    def _before_value(self, char: str) -> Progress:
        if char in _SPACE:
            return Progress.MORE
        if self._key in _ARGUMENTS and not self._has_arguments:
            return self._begin_arguments(char)
        if self._key == "name" and self._name is None:
            return self._begin_string(self._in_name) if char == '"' else Progress.BROKEN
        if self._key == "function" and self._name is None and char == '"':  # Llama 3.1 writes it now and then
            return self._begin_string(self._in_name)
        if char == '"':
            return self._begin_string(self._in_skipped_string)
        if char in "{[":
            return self._begin_brackets(self._in_skipped_brackets)
        return self._begin_word(char)

    def _begin_arguments(self, char: str) -> Progress:
        if char == '"':
            return self._begin_string(self._in_arguments_string)
        if char != "{":
            return self._begin_word(char)
        self._has_arguments = True
        self._arguments.append(char)
        return self._begin_brackets(self._in_arguments)

    def _in_arguments(self, char: str) -> Progress:
        self._arguments.append(char)
        return self._in_skipped_brackets(char)

    def _in_arguments_string(self, char: str) -> Progress:
        if self._string_goes_on(char):
            return Progress.MORE
        raw = "".join(self._raw)
        text = _decode(raw)
        self._set_arguments(raw if text is None else text)
        return self._value_ended()

    def _in_name(self, char: str) -> Progress:
        if self._string_goes_on(char):
            return Progress.MORE
        name = _decode("".join(self._raw))
        if name not in self._names:
            return Progress.BROKEN
        self._name = name
        return self._value_ended()

    def _in_skipped_string(self, char: str) -> Progress:
        return Progress.MORE if self._string_goes_on(char) else self._value_ended()

    def _in_skipped_brackets(self, char: str) -> Progress:
        if self._in_string:
            self._in_string = not self._closes_string(char)
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if not self._depth:
                return self._value_ended()
        return Progress.MORE

    def _in_word(self, char: str) -> Progress:
        if char.isalnum() or char in "+-.":
            self._raw.append(char)
            return Progress.MORE
        if self._key in _ARGUMENTS and not self._has_arguments:
            if "".join(self._raw) != "null":
                return Progress.BROKEN
            self._set_arguments("{}")
        self._value_ended()
        return self._after_value(char)

    def _after_value(self, char: str) -> Progress:
        if char in _SPACE:
            return Progress.MORE
        if char == ",":
            self._step = self._before_key
            return Progress.MORE
        return self._end() if char == "}" else Progress.BROKEN

    def _end(self) -> Progress:
        if self._name is None or not (self._has_arguments or self._eager):
            return Progress.BROKEN
        if not self._has_arguments:
            self._set_arguments("{}")
        return Progress.DONE

    def _set_arguments(self, text: str) -> None:
        self._has_arguments = True
        self._arguments.append(text)

    def _value_ended(self) -> Progress:
        self._step = self._after_value
        return Progress.MORE

    def _begin_string(self, step: Callable[[str], Progress]) -> Progress:
        self._raw, self._step = [], step
        return Progress.MORE

    def _begin_brackets(self, step: Callable[[str], Progress]) -> Progress:
        self._depth, self._step = 1, step
        return Progress.MORE

    def _begin_word(self, char: str) -> Progress:
        if not (char.isalnum() or char == "-"):
            return Progress.BROKEN
        self._raw, self._step = [char], self._in_word
        return Progress.MORE

    def _string_goes_on(self, char: str) -> bool:
        """Take a character of a string and keep it; return False if it is the quote that ends it."""
        if self._closes_string(char):
            return False
        self._raw.append(char)
        return True

    def _closes_string(self, char: str) -> bool:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        else:
            return char == '"'
        return False


def _decode(raw: str) -> str | None:
    """Return what a JSON string says; None if it is malformed."""
    try:
        return msgspec.json.decode(f'"{raw}"'.encode(), type=str)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _decode_beginning(raw: str) -> str:
    """Return what the beginning of a JSON string says; an escape that is cut off at its end is left out."""
    for cut in range(_LONGEST_ESCAPE):
        text = _decode(raw[: len(raw) - cut])
        if text is not None:
            return text
    return raw
