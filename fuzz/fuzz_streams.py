"""Server-sent events, a stream's WebSocket messages, ids and cursors."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from support.entrances import read_stream

from entrance import fuzz
from headway.core.errors import InvalidRequest

if __name__ == "__main__":
    fuzz(read_stream, InvalidRequest)
