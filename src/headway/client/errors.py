"""How a call of ours can end without an answer. Each of them is a `HeadwayError`; a server never answers with one.

CallError
├── Refused           an endpoint said no: its own status, type, code and Retry-After (429 stays 429)
├── DeadlinePassed    504  no first token, or no end, in time
├── Unreachable       502  nobody answered at all
├── AnswerCut         502  the answer began and did not end, and could not be resumed
├── AnswerMalformed   502  what came is no answer of OpenAI's API
└── Throttled         503  not sent: the endpoints refused too much lately
"""

from typing import Final

from headway.client.answer import Attempt
from headway.client.failure import Failure, Kind
from headway.core.clock import NS_PER_S
from headway.core.errors import HeadwayError


class CallError(HeadwayError):
    """Base of what ends a call.

    text      what was handed on before it ended; another endpoint's answer is never put behind it
    attempts  everyone that was asked, and what came of it
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        text: str = "",
        attempts: tuple[Attempt, ...] = (),
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s)
        self.text = text
        self.attempts = attempts


class Refused(CallError):
    """An endpoint said no, before its answer or within it; `status`, `type`, `code` and `retry_after_s` are its own."""

    code = "refused"


class DeadlinePassed(CallError):
    """The first token, or the end, did not come in time."""

    status = 504
    code = "deadline_passed"


class Unreachable(CallError):
    """No endpoint answered at all: refused connections, broken names, certificates."""

    status = 502
    code = "unreachable"


class AnswerCut(CallError):
    """The answer began and did not end (`[DONE]` never came), and could not be resumed."""

    status = 502
    code = "answer_cut"


class AnswerMalformed(CallError):
    """What came is no answer of OpenAI's API."""

    status = 502
    code = "answer_malformed"


class Throttled(CallError):
    """Nothing was sent: this client holds back from endpoints that refused too much in the last two minutes."""

    status = 503
    code = "throttled"


_CLASSES: Final[dict[Kind, type[CallError]]] = {
    Kind.MISTAKE: Refused,
    Kind.LIMITED: Refused,
    Kind.BUSY: Refused,
    Kind.ELSEWHERE: Refused,
    Kind.SLOW: DeadlinePassed,
    Kind.CUT: AnswerCut,
    Kind.BROKEN: AnswerMalformed,
    Kind.UNREACHABLE: Unreachable,
    Kind.THROTTLED: Throttled,
}


def error_of(failure: Failure, *, text: str = "", attempts: tuple[Attempt, ...] = ()) -> CallError:
    """Return the error that a call ends with."""
    error = _CLASSES[failure.kind](
        failure.message,
        param=failure.param,
        retry_after_s=None if failure.retry_after_ns is None else failure.retry_after_ns / NS_PER_S,
        text=text,
        attempts=attempts,
    )
    if isinstance(error, Refused):
        error.status = failure.status or 500
        error.type = failure.type
    error.code = failure.code or error.code
    return error
