"""What is known of one request beyond its endpoint's business, and what is told of it: to listeners, to the access log.

The edge makes it and puts it into the scope; whoever finds out more adds it.
"""

from dataclasses import dataclass, field
from typing import Final

from starlette.types import Scope

from headway.core.caller import NOBODY, Caller
from headway.core.clock import NS_PER_MS
from headway.core.errors import HeadwayError, RateLimited
from headway.core.events import CallEnded, CallRefused
from headway.core.quota import Quotas
from headway.core.request import ServiceClass
from headway.core.stages import in_ms
from headway.core.trace_parent import TraceParent
from headway.gateway.door import Call
from headway.gateway.request_record import RequestRecord
from headway.wire.error_shapes import OPENAI, ErrorShape
from headway.wire.service_headers import ServiceTerms

SCOPE_KEY: Final = "headway.request"
MAX_PATH_CHARS: Final = 200
"""Of a path that is logged: strangers choose them."""


@dataclass(slots=True)
class RequestInfo:
    """What the edge and an endpoint tell each other.

    error_shape   how the request's API describes errors
    caller        who asks; None = what was shown is no token of ours
    call          what it takes of its caller's limits
    terms         what the request asks of scheduling; None = it was not asked, or nobody trusts what it says
    record        set once the request named a model
    status        of the response, once it has begun, or the socket is open (101); None = it has not
    error         what ended it, also after a stream had begun
    trace_parent  the caller's place in its trace, where it is believed
    """

    request_id: str
    arrival_ns: int
    error_shape: ErrorShape = OPENAI
    caller: Caller | None = NOBODY
    call: Call = field(default_factory=Call)
    terms: ServiceTerms | None = None
    record: RequestRecord | None = None
    status: int | None = None
    error: HeadwayError | None = None
    trace_parent: TraceParent | None = None

    @property
    def owner(self) -> str:
        """Whose a stream is that is started or asked for with it."""
        return "" if self.caller is None else self.caller.token_id

    @property
    def quotas(self) -> Quotas:
        """What its caller has left, as of the last decision."""
        return self.error.quotas if isinstance(self.error, RateLimited) else self.call.quotas

    @property
    def service_class(self) -> ServiceClass:
        """The class it is served in, as far as it is known by now."""
        if self.record is not None:
            return self.record.service_class
        if self.terms is not None:
            return self.terms.service_class
        return (self.caller or NOBODY).service_class

    def refused(self, error: HeadwayError) -> CallRefused:
        """Return what listeners hear when `error` turns the request away."""
        return CallRefused(
            reason=error.code,
            status=error.status,
            service_class=self.service_class,
            token_id=None if self.caller is None else self.caller.token_id,
        )

    def ended(self, scope: Scope, status: int, end_ns: int) -> CallEnded:
        """Return what listeners hear when all is over."""
        request = None if self.record is None else self.record.ended
        error_code = None if request is None else request.error_code
        caller = self.caller or NOBODY
        return CallEnded(
            request_id=self.request_id,
            method=scope["method"],
            endpoint=route_of(scope),
            status=status,
            duration_ns=end_ns - self.arrival_ns,
            error_code=error_code if self.error is None else self.error.code,
            service_class=self.service_class,
            token_id=None if self.caller is None else caller.token_id,
            kind=caller.kind,
            tenant=caller.tenant,
            request=request,
            trace_parent=self.trace_parent,
        )

    def log_fields(self, scope: Scope, status: int, end_ns: int) -> dict[str, object]:
        """Return the fields of its access line; nothing of what was asked or answered."""
        fields: dict[str, object] = {
            "request_id": self.request_id,
            "http": {
                "method": method_of(scope),
                "path": scope["path"][:MAX_PATH_CHARS],
                "status": status,
                "duration_ms": round((end_ns - self.arrival_ns) / NS_PER_MS, 1),
            },
        }
        if self.caller is not None and self.caller.token_id:
            fields["token_id"] = self.caller.token_id
        if self.trace_parent is not None:
            fields["trace_id"] = f"{self.trace_parent.trace_id:032x}"
        if self.error is not None:  # the sentence may quote the caller, its code and field do not
            fields |= {"error": self.error.code, "param": self.error.param}
        if self.terms is not None:
            fields["class"] = self.terms.service_class
            if self.terms.tenant:
                fields["tenant"] = self.terms.tenant
        record = self.record
        if record is not None:
            fields |= {
                "model": record.model,
                "outcome": record.outcome,
                "stages_ms": in_ms(record.stages(end_ns)),
            }
            if record.usage is not None:
                fields |= {
                    "prompt_tokens": record.usage.prompt_tokens,
                    "cached_tokens": record.usage.cached_tokens,
                    "completion_tokens": record.usage.completion_tokens,
                }
        return fields


def request_info(scope: Scope) -> RequestInfo:
    """Return the request's info, which the edge put into the scope."""
    info = scope[SCOPE_KEY]
    assert isinstance(info, RequestInfo)
    return info


def method_of(scope: Scope) -> str:
    """Return the request's method; a socket's is that of the request which asks for it (RFC 6455, 4.1)."""
    method = scope.get("method", "GET")
    assert isinstance(method, str)
    return method


def route_of(scope: Scope) -> str:
    """Return the pattern of the route that a request was matched to, which no stranger chooses; "" if there is none."""
    path = getattr(scope.get("route"), "path", "")
    assert isinstance(path, str)
    return path
