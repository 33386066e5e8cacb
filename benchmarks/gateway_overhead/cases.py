"""What is measured: ways to be served, one beside another."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

NULL: Final = "null server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A way to be served.

    asks       callers show tokens, and have limits
    streams    where resumable streams are kept; None = streams are not resumable
    in_turns   an engine's steps come one by one, each in a turn of the event loop; else all are there at once
    """

    name: str
    asks: bool = True
    streams: str | None = None
    in_turns: bool = False

    def arguments(self, core: int, tokens: Path, folder: Path) -> list[str]:
        """Return the server's arguments; `folder`: for what it keeps in files."""
        place = "memory" if self.streams in (None, "memory") else str(folder / "streams.sqlite3")
        return [
            *("--core", str(core)),
            *(("--tokens", str(tokens)) if self.asks else ()),
            *("--streams", place),
            *(("--in-turns",) if self.in_turns else ()),
        ]


CASES: Final = (
    Case(name="nobody is asked for a token", asks=False),
    Case(name="tokens and limits"),
    Case(name="resumable, in memory", streams="memory"),
    Case(name="resumable, in SQLite", streams="sqlite"),
    Case(name="tokens and limits, step by step", in_turns=True),
    Case(name="resumable, in memory, step by step", streams="memory", in_turns=True),
    Case(name="resumable, in SQLite, step by step", streams="sqlite", in_turns=True),
)
IDLE: Final = {"plain": Case(name="plain"), "resumable": Case(name="resumable", streams="memory")}
