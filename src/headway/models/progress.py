"""How a fetch tells a person what it does: a bar on a terminal, plain lines elsewhere. It knows nothing of fetching."""

import sys
from typing import Protocol, TextIO

_BAR_CELLS = 30


class Progress(Protocol):
    """Told what happens; must not raise."""

    @property
    def interactive(self) -> bool:
        """Whether a person watches a terminal, so that a child process may draw on our standard error."""
        ...

    def note(self, line: str) -> None:
        """Report something worth a line."""
        ...

    def advance(self, what: str, num_done: int, num_total: int) -> None:
        """Report that `num_done` of `num_total` bytes of `what` are done."""
        ...


class StreamProgress:
    """Writes to a stream: a bar that redraws itself if that is a terminal, else a line per note."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_percent = -1
        self.interactive = stream.isatty()

    def note(self, line: str) -> None:
        """Write one line, below a bar that was left unfinished."""
        if self._last_percent != -1:
            self._stream.write("\n")
            self._last_percent = -1
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def advance(self, what: str, num_done: int, num_total: int) -> None:
        """Redraw the bar when the percentage changed; end its line at 100 %. Silent off a terminal."""
        percent = 100 * num_done // max(num_total, 1)
        if not self.interactive or percent == self._last_percent:
            return
        self._last_percent = percent if percent < 100 else -1
        bar = ("#" * (percent * _BAR_CELLS // 100)).ljust(_BAR_CELLS)
        self._stream.write(f"\r{what} [{bar}] {percent:3d} % of {megabytes(num_total)}")
        if percent == 100:
            self._stream.write("\n")
        self._stream.flush()


def stderr_progress() -> StreamProgress:
    """Return the progress on standard error."""
    return StreamProgress(sys.stderr)


def megabytes(num_bytes: int) -> str:
    """Return a size for people."""
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 10**7 else f"{num_bytes / 1e6:.1f} MB"
