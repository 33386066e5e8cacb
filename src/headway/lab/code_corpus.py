"""Real code to send: the running interpreter's own standard library, cut by a seed at line borders, no line twice.

Files follow each other as if in one text, so a piece may run from one into the next. The state is which lines were cut
already; `CodeCorpus` owns it.
"""

import os
import sysconfig
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from random import Random

from headway.core.errors import ConfigError
from headway.lab.token_estimate import TokenCounter

_LEFT_OUT = {"test", "tests", "idle_test", "encodings", "pydoc_data"}
"""Tests, and tables that are code in name only."""

_MACHINE_MADE = ("_sysconfigdata", "sitecustomize", "usercustomize")

_LINES_PER_TOKEN = 0.2
"""A first guess on the high side: code has about ten tokens a line."""

_SPARE = 1.15
"""How much more than the last piece needed is cut at first for the next: files differ in their tokens per line."""

_MAX_TRIES = 1000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's name, relative and with slashes, and its lines without their ends."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodePiece:
    """Consecutive lines of code; `name` and `first_line` (from 1) say where they begin."""

    name: str
    first_line: int
    text: str


@cache
def standard_library(folder: Path | None = None) -> tuple[SourceFile, ...]:
    """Read the .py files of a standard library, by default the running interpreter's, sorted by name, without tests.

    Raises ConfigError when there are none, as where the library is one zip file.
    """
    root = folder or Path(sysconfig.get_path("stdlib"))
    files: list[SourceFile] = []
    for place, folders, names in os.walk(root):
        # Packages only: site-packages, lib-dynload and config-3.11-… are no identifiers.
        folders[:] = [name for name in folders if name.isidentifier() and name not in _LEFT_OUT]
        for name in names:
            path = Path(place, name)
            if path.suffix != ".py" or name.startswith(_MACHINE_MADE) or path.is_symlink():
                continue
            try:
                text = path.read_bytes().decode()
            except (OSError, UnicodeDecodeError):
                continue
            # Not str.splitlines: it also cuts at form feeds, which the library's files contain.
            lines = tuple(text.replace("\r\n", "\n").removesuffix("\n").split("\n"))
            files.append(SourceFile(path.relative_to(root).as_posix(), lines))
    if not files:
        raise ConfigError(f"No Python source files lie in {root}, whose code would make the prompts.")
    return tuple(sorted(files, key=lambda file: file.name))


class CodeCorpus:
    """Cuts pieces of code, each line at most once unless a cut may repeat; one seed cuts the same in the same order."""

    def __init__(self, files: Sequence[SourceFile], seed: int) -> None:
        """Begin with every line unused."""
        self._names = [file.name for file in files]
        self._lines = [line for file in files for line in file.lines]
        self._starts: list[int] = []
        start = 0
        for file in files:
            self._starts.append(start)
            start += len(file.lines)
        self._seed = seed
        self._random = Random(f"{seed}:code")
        self._unused = [(0, len(self._lines))]
        self._lines_per_token = _LINES_PER_TOKEN

    @property
    def num_unused_lines(self) -> int:
        """How many lines were never cut."""
        return sum(stop - start for start, stop in self._unused)

    def take(self, num_lines: int, *, repeat: bool = False) -> CodePiece:
        """Cut `num_lines` lines; with `repeat`, used ones when no unused ones follow each other in that number.

        Raises ConfigError when that number is not left, or with `repeat` not there at all.
        """
        start, _ = self._take(num_lines, repeat)
        return self._piece(start, start + num_lines)

    def take_tokens(self, max_tokens: int, count: TokenCounter, *, repeat: bool = False) -> CodePiece:
        """Cut as many lines as `count` finds to be at most `max_tokens` tokens, at least one line.

        What does not fit counts as unused again. Raises ConfigError as `take` does, and when no single line fits.
        """
        num_lines = ceil(max_tokens * self._lines_per_token)
        for _ in range(_MAX_TRIES):
            start, unused = self._take(num_lines, repeat)
            kept = self._num_fitting(start, num_lines, max_tokens, count)
            too_short = kept == num_lines and count(self._text(start, start + kept)) < max_tokens
            # A line too long for any prompt is used up, and the next place is tried.
            returned = start if too_short else start + max(kept, 1)
            if unused:
                self._release(returned, start + num_lines)
            if too_short:
                num_lines *= 2
            elif kept:
                self._lines_per_token = kept * _SPARE / max_tokens
                return self._piece(start, start + kept)
        raise ConfigError(f"No line of code fits into {max_tokens} tokens.")

    def block(self, key: str, max_tokens: int, count: TokenCounter) -> str:
        """Return code of `max_tokens` tokens that depends on the seed and `key` alone, used or not, and begins with `key`.

        A smaller `max_tokens` gives the beginning of what a larger one gives.
        """
        start = Random(f"{self._seed}:block:{key}").randrange(len(self._lines))
        text = f"# {key}"
        while count(text) < max_tokens:
            num_lines = 1 + ceil(max_tokens * _LINES_PER_TOKEN)
            text += "\n" + "\n".join(self._lines[(start + i) % len(self._lines)] for i in range(num_lines))
            start += num_lines
        return text[
            : bisect_right(range(1, len(text) + 1), max_tokens, key=lambda length: count(text[:length]))
        ]

    def _take(self, num_lines: int, repeat: bool) -> tuple[int, bool]:
        """Choose among all places for the lines, mark them used; return the first, and whether they were unused.

        An unused range of r lines holds r // n pieces, and still does after one is cut: the cut lies a multiple of n,
        plus part of what those pieces leave over, behind the range's start. So no gaps between equal pieces go to waste.
        """
        num_places = sum((stop - start) // num_lines for start, stop in self._unused)
        if num_places == 0:
            if repeat and num_lines <= len(self._lines):
                return self._random.randrange(len(self._lines) - num_lines + 1), False
            raise ConfigError(
                f"The code for prompts is used up: {num_lines} unused lines that follow each other are not left of "
                f"{len(self._lines)}; send fewer or shorter prompts, or let the workload repeat code (:repeat)."
            )
        place = self._random.randrange(num_places)
        for index, (start, stop) in enumerate(self._unused):
            here, left_over = divmod(stop - start, num_lines)
            if place < here:
                first = start + place * num_lines + self._random.randrange(left_over + 1)
                parts = [(start, first), (first + num_lines, stop)]
                self._unused[index : index + 1] = [part for part in parts if part[0] < part[1]]
                return first, True
            place -= here
        raise AssertionError("a place was counted that is not there")

    def _release(self, start: int, stop: int) -> None:
        """Count lines as unused again, joined to what is unused around them."""
        joined: list[tuple[int, int]] = []
        for part in sorted([*self._unused, (start, stop)]):
            if joined and part[0] <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], part[1]))
            elif part[0] < part[1]:
                joined.append(part)
        self._unused = joined

    def _num_fitting(self, start: int, num_lines: int, max_tokens: int, count: TokenCounter) -> int:
        return bisect_right(
            range(1, num_lines + 1), max_tokens, key=lambda lines: count(self._text(start, start + lines))
        )

    def _text(self, start: int, stop: int) -> str:
        return "\n".join(self._lines[start:stop])

    def _piece(self, start: int, stop: int) -> CodePiece:
        file = bisect_right(self._starts, start) - 1
        return CodePiece(self._names[file], start - self._starts[file] + 1, self._text(start, stop))
