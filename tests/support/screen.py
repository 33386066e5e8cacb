"""What a terminal shows after it was sent something: lines, erasing, moving up, the cursor. It has any size needed."""

import codecs
import re
from dataclasses import dataclass, field

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


@dataclass
class Screen:
    """Feed it; raises AssertionError for what it does not know."""

    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    column: int = 0
    cursor_visible: bool = True
    styles: set[str] = field(default_factory=set)
    """Numbers of all styles that were set."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(), repr=False
    )
    _begun: str = ""
    """A sequence whose end has not come."""

    def feed(self, data: bytes) -> None:
        """Take what was sent, cut anywhere."""
        text, self._begun = self._begun + self._decoder.decode(data), ""
        at = 0
        for piece in _PIECE.finditer(text):
            assert piece.start() == at, f"not known: {text[at : piece.start()]!r}"
            at = piece.end()
            argument, command, control, plain = piece.groups()
            if plain:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + plain + line[self.column + len(plain) :]
                self.column += len(plain)
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            else:
                self._command(argument, command)
        self._begun = text[at:]
        assert re.fullmatch(r"(\x1b(\[[?0-9;]*)?)?", self._begun), f"not known: {self._begun!r}"

    def _command(self, argument: str, command: str) -> None:
        match command, argument:
            case "A", number:
                assert self.row >= int(number or 1), "moved above what was drawn"
                self.row -= int(number or 1)
            case "K", "2":
                self.lines[self.row] = ""
            case "m", numbers:
                self.styles.update(numbers.split(";"))
            case (("h" | "l"), "?25"):
                self.cursor_visible = command == "h"
            case _:
                raise AssertionError(f"not known: {argument}{command}")
