"""`X-Headway-Resumable: 1` asks that a stream outlives its connection; `X-Headway-Stream` of the answer has its id."""

from collections.abc import Iterable
from typing import Final

from headway.core.errors import InvalidRequest

RESUMABLE: Final = "x-headway-resumable"
STREAM_HEADER: Final = "x-headway-stream"


def wants_resumable(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return what an ASGI scope's `headers` (names in lower case) ask for.

    Raises InvalidRequest for any value but 0 and 1.
    """
    values = {value.strip(b" \t") for name, value in headers if name == RESUMABLE.encode()}
    if values - {b"0", b"1"} or len(values) > 1:
        raise InvalidRequest(f"The header `{RESUMABLE}` must be 0 or 1.", param=RESUMABLE)
    return values == {b"1"}
