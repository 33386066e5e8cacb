"""What can go wrong with one endpoint, as a value, and what its kind allows. It knows no HTTP library."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """What a failure means for what may be tried next."""

    MISTAKE = "the call itself is wrong: nobody else will take it"
    LIMITED = "the caller's own limit (429)"
    BUSY = "the endpoint's limit or fault (408, 409, 425, 5xx)"
    ELSEWHERE = "this endpoint does not have it (401 to 405, 410, 501, too long for its context): another may"
    SLOW = "no first token in its time"
    CUT = "the answer began and did not end"
    BROKEN = "what came is no answer"
    UNREACHABLE = "no answer began"
    THROTTLED = "held back here: it refused too much lately"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How asking an endpoint failed.

    status          HTTP status it answered with, or that stands for an error within its stream; None = none
    type, code      OpenAI's fields, as it sent them; `code` of ours where it sent none
    retry_after_ns  how long it asks to wait
    may_retry       what it says of asking again (`x-should-retry`); None = nothing
    """

    kind: Kind
    message: str
    status: int | None = None
    type: str = "server_error"
    code: str = ""
    param: str | None = None
    retry_after_ns: int | None = None
    may_retry: bool | None = None


_ELSEWHERE_STATUSES: Final = frozenset({401, 402, 403, 404, 405, 410, 501})
_BUSY_STATUSES: Final = frozenset({408, 409, 425})
_RETRYABLE: Final = frozenset({Kind.LIMITED, Kind.BUSY, Kind.UNREACHABLE, Kind.CUT, Kind.SLOW})
_TELLING: Final = (
    Kind.MISTAKE,
    Kind.LIMITED,
    Kind.BUSY,
    Kind.ELSEWHERE,
    Kind.CUT,
    Kind.BROKEN,
    Kind.SLOW,
    Kind.UNREACHABLE,
    Kind.THROTTLED,
)
"""Which of several failures a caller can do most about, first."""


def kind_of(status: int, code: str) -> Kind:
    """Return what an HTTP status other than 200, and the error's code, mean."""
    if status == 429:
        return Kind.LIMITED
    if status in _ELSEWHERE_STATUSES or code == "context_length_exceeded" or 300 <= status < 400:
        return Kind.ELSEWHERE
    if status in _BUSY_STATUSES or status >= 500:
        return Kind.BUSY
    return Kind.MISTAKE if 400 <= status < 500 else Kind.BROKEN


def may_retry(failure: Failure) -> bool:
    """Return whether the same endpoint may be asked again; its own word counts first."""
    return failure.kind in _RETRYABLE if failure.may_retry is None else failure.may_retry


def most_telling(failures: Sequence[Failure]) -> Failure:
    """Return the failure a call ends with: by kind, then the earliest, which is nearest to what was asked for first."""
    return min(failures, key=lambda failure: _TELLING.index(failure.kind))
