"""What an editor asks of `headway complete`, one JSON object: a file around a cursor. Pure."""

from typing import Annotated, Final

import msgspec

from headway.client.fill_in import CodeContext
from headway.core.errors import InvalidRequest

_Place = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
_UNIT_BYTES: Final = 2


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A position as the language server protocol (3.17) has it: a line from 0, and UTF-16 code units into it."""

    line: _Place
    character: _Place


class EditorRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted: `prefix` and `suffix`, or `text` and `cursor`. The rest is optional, and told in the reference."""

    id: str | int | None = None
    prefix: str | None = None
    suffix: str = ""
    text: str | None = None
    cursor: Cursor | None = None
    path: str = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    stop: list[str] | None = None
    budget_ms: Annotated[float, msgspec.Meta(gt=0, le=3_600_000)] | None = None

    @property
    def context(self) -> CodeContext:
        """The file around the cursor."""
        if self.text is None or self.cursor is None:
            return CodeContext(prefix=self.prefix or "", suffix=self.suffix, path=self.path)
        prefix, suffix = split_at(self.text, self.cursor)
        return CodeContext(prefix=prefix, suffix=suffix, path=self.path)


def parse_request(data: bytes) -> EditorRequest:
    """Read a request; raises InvalidRequest."""
    try:
        request = msgspec.json.decode(data, type=EditorRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        there = (
            f"; there are {', '.join(EditorRequest.__struct_fields__)}"
            if "unknown field" in str(error)
            else ""
        )
        raise InvalidRequest(
            f"The request is no JSON object that headway complete knows: {error}{there}."
        ) from None
    if (request.prefix is None) == (request.text is None):
        raise InvalidRequest("A request has either `prefix` (and `suffix`), or `text` and `cursor`.")
    if request.text is not None and (request.cursor is None or request.suffix):
        raise InvalidRequest("`text` needs `cursor`, and no `suffix`.")
    return request


def split_at(text: str, cursor: Cursor) -> tuple[str, str]:
    """Return what stands before and after a cursor; one behind a line's or the text's end stands at that end."""
    start = 0
    for _ in range(cursor.line):
        end = text.find("\n", start)
        if end < 0:
            return text, ""
        start = end + 1
    end = text.find("\n", start)
    line = text[start : len(text) if end < 0 else end].removesuffix("\r")
    units = line.encode("utf-16-le", "surrogatepass")[: cursor.character * _UNIT_BYTES]
    at = start + len(units.decode("utf-16-le", "ignore"))
    return text[:at], text[at:]
