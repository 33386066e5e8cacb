"""The outermost layer: request ids, one access line and one `CallEnded` per request, no exception without an answer.

Pure ASGI.

It knows no endpoint. A traceback goes to the log, never to a client.
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.caller import Caller
from headway.core.clock import NS_PER_MS, Clock
from headway.core.errors import HeadwayError, InternalError
from headway.core.events import CallEnded, CallRefused, Hook
from headway.core.request import ServiceClass
from headway.core.stages import in_ms
from headway.core.trace_parent import TraceParent, parse_trace_parent
from headway.gateway.client_watch import ClientGone
from headway.gateway.request_record import CLIENT_CLOSED_STATUS, RequestRecord
from headway.gateway.response import ErrorBody, Responder, SlowReader
from headway.wire.errors import error_body
from headway.wire.service_headers import ServiceTerms

logger = logging.getLogger("headway.gateway")
access_logger = logging.getLogger("headway.access")

_PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines: their access lines are for debugging only."""
_REFUSALS: Final = frozenset({401, 403, 429, 503})
"""Statuses of who it is that asks, of its own limits, and of the server's."""
_STRANGER: Final = Caller()
_SCOPE_KEY: Final = "headway.request"


@dataclass(slots=True)
class RequestInfo:
    """What the edge and an endpoint tell each other.

    error_body   the shape in which the request's API describes errors
    caller       who asks; None = what was shown is no token of ours
    terms        what the request asks of scheduling; None = it was not asked, or nobody trusts what it says
    record       set once the request named a model
    trace_parent the caller's place in its trace, where it is believed
    """

    request_id: str
    arrival_ns: int
    error_body: ErrorBody = error_body
    caller: Caller | None = field(default_factory=Caller)
    terms: ServiceTerms | None = None
    record: RequestRecord | None = None
    error: HeadwayError | None = None
    trace_parent: TraceParent | None = None


def request_info(scope: Scope) -> RequestInfo:
    """Return the request's info, which the edge put into the scope."""
    info = scope[_SCOPE_KEY]
    assert isinstance(info, RequestInfo)
    return info


def route_of(scope: Scope) -> str:
    """Return the pattern of the route that the request was matched to, "" if there is none: what a stranger cannot choose."""
    path = getattr(scope.get("route"), "path", "")
    assert isinstance(path, str)
    return path


def unexpected(error: Exception, request_id: str) -> InternalError:
    """Log a bug of ours under the request's id; return what the client is told."""
    logger.error("a request failed unexpectedly", exc_info=error, extra={"request_id": request_id})
    return InternalError(
        f"The server failed unexpectedly; its log has the details under request id {request_id}."
    )


class Edge:
    """Wraps the whole application.

    error_bodies   shapes of errors by path, where they are not OpenAI's
    tell           takes events; must not raise
    trust_traces   whether callers' `traceparent` counts: it puts spans into their trace, and has them recorded
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        send_timeout_s: float,
        error_bodies: Mapping[str, ErrorBody],
        tell: Hook,
        trust_traces: bool,
    ) -> None:
        self._app = app
        self._error_bodies = error_bodies
        self._clock = clock
        self._send_timeout_s = send_timeout_s
        self._tell = tell
        self._trust_traces = trust_traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; other scopes pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        info = RequestInfo(
            secrets.token_hex(16), self._clock.now_ns(), self._error_bodies.get(scope["path"], error_body)
        )
        scope[_SCOPE_KEY] = info
        if self._trust_traces:
            info.trace_parent = parse_trace_parent(scope["headers"])
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", info.request_id.encode())]
            await send(message)

        try:
            await self._answer(scope, receive, send_with_id, info)
        finally:
            end_ns = self._clock.now_ns()
            if scope["path"] not in _PROBES:
                self._tell_end(scope, info, status or CLIENT_CLOSED_STATUS, end_ns)
            self._log_access(scope, info, status or CLIENT_CLOSED_STATUS, end_ns)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, info: RequestInfo) -> None:
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        responder = Responder(send, timeout_s=self._send_timeout_s, error_body=info.error_body)
        try:
            await self._app(scope, receive, watched_send)
        except (ClientGone, SlowReader):
            return
        except HeadwayError as error:
            failure = error
        except Exception as error:
            failure = unexpected(error, info.request_id)
        else:
            return
        # Its frames hold the request's body, and this one's the error: a circle, which would wait for the collector.
        info.error = failure = failure.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
        if not started:
            if failure.status in _REFUSALS:
                self._tell_refusal(info, failure)
            try:
                await responder.error(failure)
            except SlowReader:
                return

    def _tell_refusal(self, info: RequestInfo, error: HeadwayError) -> None:
        self._tell(
            CallRefused(
                reason=error.code,
                status=error.status,
                service_class=_service_class(info),
                token_id=info.caller and info.caller.token_id,
            )
        )

    def _tell_end(self, scope: Scope, info: RequestInfo, status: int, end_ns: int) -> None:
        request = info.record and info.record.ended
        caller = info.caller or _STRANGER
        error_code = info.error.code if info.error is not None else request and request.error_code
        self._tell(
            CallEnded(
                request_id=info.request_id,
                method=scope["method"],
                endpoint=route_of(scope),
                status=status,
                duration_ns=end_ns - info.arrival_ns,
                error_code=error_code,
                service_class=_service_class(info),
                token_id=info.caller and caller.token_id,
                kind=caller.kind,
                tenant=caller.tenant,
                request=request,
                trace_parent=info.trace_parent,
            )
        )

    def _log_access(self, scope: Scope, info: RequestInfo, status: int, end_ns: int) -> None:
        path: str = scope["path"]
        level = logging.DEBUG if path in _PROBES else logging.INFO
        if not access_logger.isEnabledFor(level):
            return
        duration_ms = (end_ns - info.arrival_ns) / NS_PER_MS
        extra: dict[str, object] = {
            "request_id": info.request_id,
            "http": {
                "method": scope["method"],
                "path": path,
                "status": status,
                "duration_ms": round(duration_ms, 1),
            },
        }
        if info.caller is not None and info.caller.token_id:
            extra["token_id"] = info.caller.token_id
        if info.trace_parent is not None:
            extra["trace_id"] = f"{info.trace_parent.trace_id:032x}"
        if info.error is not None:  # the sentence may quote the caller, its code and field do not
            extra |= {"error": info.error.code, "param": info.error.param}
        if info.terms is not None:
            extra["class"] = info.terms.service_class
            if info.terms.tenant:
                extra["tenant"] = info.terms.tenant
        record = info.record
        if record is not None:
            extra |= {"model": record.model, "outcome": record.outcome, "stages_ms": in_ms(record.stages(end_ns))}
            if record.usage is not None:
                extra |= {
                    "prompt_tokens": record.usage.prompt_tokens,
                    "cached_tokens": record.usage.cached_tokens,
                    "completion_tokens": record.usage.completion_tokens,
                }
        access_logger.log(
            level, "%s %s %d %.1f ms", scope["method"], path[:200], status, duration_ms, extra=extra
        )


def _service_class(info: RequestInfo) -> ServiceClass:
    if info.record is not None:
        return info.record.service_class
    if info.terms is not None:
        return info.terms.service_class
    return info.caller.service_class if info.caller is not None else "normal"
