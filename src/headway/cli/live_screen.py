"""Shows a run while it goes, on a terminal's standard error; a table that fails is told and ends no measurement.

One task of the measuring loop draws, so what a drawing costs is what the measurement pays: about a millisecond, four times a
second. A terminal that takes nothing at the moment (Ctrl-S, a slow line) is passed over instead of waited for.
"""

import asyncio
import os
import select
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console

from headway.cli.live_table import render
from headway.lab.progress import LoadPlan, Progress
from headway.lab.sample import Sample

REFRESH_S = 0.25

_USUAL_SIZE = (80, 24)
"""Of a terminal that does not say."""
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_ERASE_LINE = "\r\x1b[2K"
_UP = "\x1b[A"


def is_possible(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether standard error is a terminal that can be drawn on."""
    return sys.stderr.isatty() and environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


class LiveScreen:
    """Use it as a context manager inside a loop: it draws until it is left, and takes away what it drew.

    `error` is what ended it before.
    """

    def __init__(
        self, heading: str, terminal: TextIO | None = None, progress: Progress | None = None
    ) -> None:
        self._heading = heading
        self._terminal = terminal or sys.stderr
        self._console = Console(file=self._terminal)
        self._progress = progress or Progress()
        self._task: asyncio.Task[None] | None = None
        self._height = 0
        """Lines that are drawn; the cursor stands below them."""
        self.error: Exception | None = None

    def begin(self, plan: LoadPlan) -> None:
        """Take what is known of a load that begins."""
        self._progress.set_planned(plan.num_requests, plan.duration_ns)
        self._progress.follow(plan.num_running)

    def see(self, sample: Sample) -> None:
        """Count a request that is over; raises nothing."""
        if self.error is None:
            try:
                self._progress.add(sample)
            except Exception as error:
                self.error = error

    def __enter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._keep_drawing())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        try:
            self._write(self._erased() + _SHOW_CURSOR)
        except (OSError, ValueError) as gone:
            self.error = self.error or gone

    async def _keep_drawing(self) -> None:
        try:
            while self.error is None:
                if select.select([], [self._terminal], [], 0)[1]:
                    self.draw()
                await asyncio.sleep(REFRESH_S)
        except Exception as error:
            self.error = error

    def draw(self) -> None:
        """Draw over what was drawn before; raises OSError for a terminal that went away."""
        columns, lines_there = (
            os.get_terminal_size(self._terminal.fileno()) if self._terminal.isatty() else (0, 0)
        )
        width, height = columns or _USUAL_SIZE[0], lines_there or _USUAL_SIZE[1]
        self._console.width = width
        lines = list(render(self._progress.snapshot(), self._heading, width))
        del lines[max(1, height - 1) :]  # what has left the screen could not be taken away
        with self._console.capture() as drawn:
            for line in lines:
                self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        self._write(_HIDE_CURSOR + self._erased() + drawn.get())
        self._height = len(lines)

    def _erased(self) -> str:
        """Return what takes the last drawing away. A terminal that became narrower may keep its topmost lines."""
        height, self._height = self._height, 0
        return (
            _ERASE_LINE + (_UP + _ERASE_LINE) * height
        )  # erasing below as one, some terminals keep what is erased

    def _write(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()
