"""Finds tool calls in an answer while it streams: text in, content and calls out. A pure state machine over characters.

Content is given out at once; held back is only what may be a marker's beginning, and white space before it. White space
around calls is dropped. A call starts when its name is known; from then on its arguments are given out as they come.
What is no call after all (malformed, another function's name, cut off before it started) is given back as content, marker
included; nothing else is ever lost. As the machine takes one character at a time, how the text was cut does not matter.

The markers' automaton is that of `models/stop_strings.py`. It knows no tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headway.gateway.text_events import ToolCallArguments, ToolCallStart
from headway.gateway.tool_call_reader import CallReader, Progress
from headway.gateway.tool_syntax import ToolSyntax
from headway.gateway.tool_xml_reader import ParameterTypes, XmlCallReader
from headway.models.stop_strings import StopStrings

_SPACE: Final = " \t\r\n"
_SEPARATOR: Final = ";"
_ROOT: Final = 0


@dataclass(frozen=True, slots=True)
class Content:
    """Text that is not part of a call. `start`: where it begins in the whole text, in characters."""

    start: int
    text: str


Found = Content | ToolCallStart | ToolCallArguments


class ToolParser:
    """The calls of one choice.

    functions  those that may be called, and what their parameters take
    new_id     draws a call's id
    max_calls  after so many calls nothing more is read (`full`); None = as many as come
    """

    def __init__(
        self,
        choice: int,
        syntax: ToolSyntax,
        functions: Mapping[str, ParameterTypes],
        new_id: Callable[[], str],
        max_calls: int | None = None,
    ) -> None:
        self.num_calls = 0
        self._choice = choice
        self._syntax = syntax
        self._functions = functions
        self._new_id = new_id
        self._max_calls = max_calls
        self._markers = StopStrings((syntax.begin,))
        self._step: Callable[[str], None] = self._in_text
        self._found: list[Found] = []
        self._pending: list[str] = []  # read, and neither given out nor dropped
        self._pending_start = 0
        self._node = _ROOT  # how much of a marker the pending text ends with
        self._num_blank = 0  # white space right before that
        self._seen_text = False  # anything but white space
        self._after_call = False  # nothing but white space since a call
        self._reader: CallReader | XmlCallReader | None = None
        self._in_list = False
        self._num_closed = 0

    @property
    def full(self) -> bool:
        """Whether `max_calls` calls are complete."""
        return self._max_calls is not None and self._num_closed >= self._max_calls

    def push(self, text: str) -> list[Found]:
        """Take text and return what it makes certain, adjoining parts joined."""
        for char in text:
            if self.full:
                break
            self._step(char)
        return self._take()

    def flush(self) -> list[Found]:
        """No more text comes: return what was held back."""
        if self._reader is not None and self._reader.started:
            self._reader.flush()
            self._give_arguments(self._reader)
        elif not self._is_between_calls():
            self._release(len(self._pending))
        return self._take()

    def _in_text(self, char: str) -> None:
        """Outside of calls."""
        pending = self._pending
        pending.append(char)
        before = self._markers.depths[self._node]
        self._node = self._markers.step(self._node, char)
        if self._markers.ends[self._node]:
            self._node, self._num_blank = _ROOT, 0
            self._seen_text = True
            self._in_list = self._syntax.begin.endswith("[")
            self._step = self._before_call
            return
        depth = self._markers.depths[self._node]
        if not depth:
            if char in _SPACE:
                self._num_blank = 1 if before else self._num_blank + 1
            elif char == "{" and self._syntax.is_bare and not self._seen_text and not before:
                self._begin_call(eager=False)
                return
            else:
                self._num_blank = 0
        elif depth <= before:
            self._num_blank = 0
        self._release(len(pending) - self._num_blank - depth)

    def _before_call(self, char: str) -> None:
        """After a marker, or a comma in a list."""
        self._pending.append(char)
        if char == ("<" if self._syntax.is_xml else "{"):
            self._begin_call(eager=True)
        elif char == "[" and not self._in_list and not self._syntax.is_xml:
            self._in_list = True
        elif char not in _SPACE:
            self._give_back(char)

    def _begin_call(self, *, eager: bool) -> None:
        self._num_blank = 0
        if self._syntax.is_xml:
            self._reader = XmlCallReader(self._functions)
        else:
            self._reader = CallReader(self._functions, eager=eager)
        self._step = self._in_call

    def _in_call(self, char: str) -> None:
        reader = self._reader
        assert reader is not None
        had_started = reader.started
        progress = reader.push(char)
        if had_started:
            if progress is not Progress.BROKEN:
                self._pending_start += 1
        else:
            self._pending.append(char)
            if reader.started:
                self._drop_pending()
                self._found.append(ToolCallStart(self._choice, self.num_calls, self._new_id(), reader.name))
                self.num_calls += 1
        if reader.started:
            self._give_arguments(reader)
        if progress is Progress.MORE:
            return
        self._reader = None
        if not reader.started:
            self._give_back(char)
            return
        self._num_closed += 1
        self._after_call = True
        self._step = self._in_list_after_call if self._in_list else self._after_calls
        if (
            progress is Progress.BROKEN and not self.full
        ):  # what followed the arguments is no part of the object
            self._step(char)

    def _in_list_after_call(self, char: str) -> None:
        self._pending.append(char)
        if char == ",":
            self._step = self._before_call
        elif char == "]":
            self._in_list = False
            self._drop_pending()
            self._step = self._after_calls
        elif char not in _SPACE:
            self._in_list = False
            self._replay()

    def _after_calls(self, char: str) -> None:
        """Where the end marker may come, or, without markers, the next call."""
        self._pending.append(char)
        text = "".join(self._pending).lstrip(_SPACE)
        if text and self._syntax.end.startswith(text):
            if text == self._syntax.end:
                self._drop_pending()
                self._step = self._in_text
        elif self._syntax.is_bare and text.strip(_SPACE + _SEPARATOR) == "{" and text.count(_SEPARATOR) <= 1:
            self._begin_call(eager=False)
        elif text and not (self._syntax.is_bare and text.strip(_SPACE) == _SEPARATOR):
            self._replay()

    def _is_between_calls(self) -> bool:
        """Whether all that is pending is what stands between calls, or the beginning of what ends them."""
        text = "".join(self._pending).strip(_SPACE)
        return self._after_call and (text in ("", ",", _SEPARATOR) or self._syntax.end.startswith(text))

    def _give_back(self, last: str) -> None:
        """It was no call: what is pending is content, but for its last character, which may begin another."""
        self._pending.pop()
        self._in_list = False
        self._seen_text = True
        self._release(len(self._pending))
        self._step = self._in_text
        self._in_text(last)

    def _replay(self) -> None:
        """Read the pending text again, as text between calls."""
        chars, self._pending = self._pending, []
        self._step = self._in_text
        for char in chars:
            self._step(char)

    def _release(self, count: int) -> None:
        """Give out the first `count` pending characters; white space right after a call is dropped."""
        if not count:
            return
        text = "".join(self._pending[:count])
        del self._pending[:count]
        start, self._pending_start = self._pending_start, self._pending_start + count
        if self._after_call:
            start += len(text) - len(text.lstrip(_SPACE))
            text = text.lstrip(_SPACE)
        if text:
            self._found.append(Content(start, text))
            self._seen_text = self._seen_text or bool(text.strip(_SPACE))
            self._after_call = False

    def _drop_pending(self) -> None:
        self._pending_start += len(self._pending)
        self._pending.clear()

    def _give_arguments(self, reader: CallReader | XmlCallReader) -> None:
        text = reader.take_arguments()
        if text:
            self._found.append(ToolCallArguments(self._choice, self.num_calls - 1, text))

    def _take(self) -> list[Found]:
        """Return what was found, adjoining text and arguments joined."""
        joined: list[Found] = []
        for found in self._found:
            last = joined[-1] if joined else None
            if isinstance(found, Content) and isinstance(last, Content):
                if last.start + len(last.text) == found.start:
                    joined[-1] = Content(last.start, last.text + found.text)
                    continue
            elif isinstance(found, ToolCallArguments) and isinstance(last, ToolCallArguments):
                joined[-1] = ToolCallArguments(last.choice, last.index, last.text + found.text)
                continue
            joined.append(found)
        self._found = []
        return joined
