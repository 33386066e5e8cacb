"""Reads one call as Qwen3-Coder writes it, tags around plain text, character by character; its arguments come out as JSON.

    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>

One line break after a parameter's tag and one before its end belong to the form. A value is text if that is all the
function's schema takes there, and streams; otherwise it is JSON of a type that the schema takes, or else text again.
It knows neither the markers around the call nor what stands beside it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from headway.gateway.tool_call_reader import Progress
from headway.models.stop_strings import StopStrings

_SPACE: Final = " \t\r\n"
_FUNCTION: Final = "function="
_PARAMETER: Final = "parameter="
_END: Final = "/function"
_VALUE_ENDS: Final = StopStrings(["\n</parameter>", "</parameter>"])
_MAX_TAG_CHARS: Final = 300
"""More than any function's or parameter's name; what is longer is no tag."""

ParameterTypes = Mapping[str, frozenset[str]]
"""By parameter, the JSON types other than strings that it takes; one that is missing takes text only."""


class XmlCallReader:
    """One call. Give it what follows its first `<`.

    functions   those that may be called; another name breaks the call
    """

    def __init__(self, functions: Mapping[str, ParameterTypes]) -> None:
        self._functions = functions
        self._step: Callable[[str], Progress] = self._in_function_tag
        self._name: str | None = None
        self._tag: list[str] = []
        self._types: frozenset[str] = frozenset()  # of the parameter that is being read
        self._value: list[str] = []  # of it, what was not given out
        self._node = 0  # how much of the value's end that ends with
        self._at_start = False  # of the value, where a line break is no part of it
        self._num_parameters = 0
        self._arguments: list[str] = []  # not taken yet

    @property
    def started(self) -> bool:
        """Whether this certainly is a call, and its name is known."""
        return self._name is not None

    @property
    def name(self) -> str:
        """The function's name; only once the call has started."""
        assert self._name is not None, "not started"
        return self._name

    def push(self, char: str) -> Progress:
        """Take the next character. After DONE or BROKEN none may follow."""
        progress = self._step(char)
        if progress is Progress.BROKEN and self.started:
            self._arguments.append("}" if self._num_parameters else "{}")
        return progress

    def take_arguments(self) -> str:
        """Return the text that the arguments gained since this was last called."""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def flush(self) -> None:
        """No more text comes: release what may have been the end of a text."""
        if self._step == self._in_value and not self._types:
            self._give_text(len(self._value))

    def _in_function_tag(self, char: str) -> Progress:
        if char != ">":
            return self._grow_tag(char, _FUNCTION)
        tag = self._take_tag()
        name = tag.removeprefix(_FUNCTION)
        if name == tag or name not in self._functions:
            return Progress.BROKEN
        self._name = name
        self._step = self._between
        return Progress.MORE

    def _between(self, char: str) -> Progress:
        if char == "<":
            self._step = self._in_tag
        elif char not in _SPACE:
            return Progress.BROKEN
        return Progress.MORE

    def _in_tag(self, char: str) -> Progress:
        if char != ">":
            return self._grow_tag(char, _PARAMETER, _END)
        tag = self._take_tag()
        if tag == _END:
            self._arguments.append("}" if self._num_parameters else "{}")
            return Progress.DONE
        key = tag.removeprefix(_PARAMETER)
        if key == tag:
            return Progress.BROKEN
        self._arguments.append(", " if self._num_parameters else "{")
        self._num_parameters += 1
        self._types = self._functions[self.name].get(key, frozenset())
        self._arguments.append(json.dumps(key, ensure_ascii=False) + (": " if self._types else ': "'))
        self._node, self._at_start = 0, True
        self._step = self._in_value
        return Progress.MORE

    def _in_value(self, char: str) -> Progress:
        self._value.append(char)
        self._node = _VALUE_ENDS.step(self._node, char)
        if _VALUE_ENDS.ends[self._node]:
            end = len(self._value) - _VALUE_ENDS.ends[self._node]
            self._end_value(end)
            self._step = self._between
        elif not self._types:
            self._give_text(len(self._value) - _VALUE_ENDS.depths[self._node])
        return Progress.MORE

    def _end_value(self, num_chars: int) -> None:
        if self._types:
            text = "".join(self._value[:num_chars]).removeprefix("\n")
            self._arguments.append(_as_json(text, self._types))
        else:
            self._give_text(num_chars)
            self._arguments.append('"')
        self._value.clear()

    def _give_text(self, num_chars: int) -> None:
        """Give out the first `num_chars` characters of a text that are still held."""
        if num_chars <= 0:
            return
        text = "".join(self._value[:num_chars])
        del self._value[:num_chars]
        if self._at_start:
            text = text.removeprefix("\n")
            self._at_start = False
        self._arguments.append(json.dumps(text, ensure_ascii=False)[1:-1])

    def _grow_tag(self, char: str, *beginnings: str) -> Progress:
        self._tag.append(char)
        tag = "".join(self._tag)
        if len(tag) > _MAX_TAG_CHARS or char in "<\n":
            return Progress.BROKEN
        fits = any(tag.startswith(begin) or begin.startswith(tag) for begin in beginnings)
        return Progress.MORE if fits else Progress.BROKEN

    def _take_tag(self) -> str:
        tag = "".join(self._tag)
        self._tag.clear()
        return tag


def parameter_types(schema: Mapping[str, Any] | None) -> ParameterTypes:
    """Return what the parameters of a function take besides text, read from its schema."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, dict):
        return {}
    return {key: json_types(value) - {"string"} for key, value in properties.items()}


def json_types(schema: object) -> frozenset[str]:
    """Return the JSON types that a schema names; "any" for one that is not plain (a reference), none if it is silent."""
    if not isinstance(schema, dict):
        return frozenset()
    found: set[str] = {"any"} if "$ref" in schema or "allOf" in schema else set()
    named = schema.get("type")
    found.update([named] if isinstance(named, str) else named if isinstance(named, list) else [])
    if named is None:
        values = schema.get("enum")
        found.update(map(_type_of, values if isinstance(values, list) else []))
        found.update(map(_type_of, [schema["const"]] if "const" in schema else []))
    for combined in ("anyOf", "oneOf"):
        if isinstance(schema.get(combined), list):
            found.update(*(json_types(part) for part in schema[combined]))
    return frozenset(str(name) for name in found)


def _as_json(text: str, types: frozenset[str]) -> str:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    kind = _type_of(value)
    fits = "any" in types or kind in types or (kind == "integer" and "number" in types)
    return text.strip() if fits else json.dumps(text, ensure_ascii=False)


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"
