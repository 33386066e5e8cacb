"""The outermost layer: request ids, one access line per request, and no exception without an answer. Pure ASGI.

It knows no endpoint. A traceback goes to the log, never to a client.
"""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.caller import NOBODY, Caller
from headway.core.clock import NS_PER_MS, Clock
from headway.core.errors import HeadwayError, InternalError
from headway.gateway.client_watch import ClientGone
from headway.gateway.request_record import CLIENT_CLOSED_STATUS, RequestRecord
from headway.gateway.response import ErrorBody, Responder, SlowReader
from headway.wire.errors import error_body
from headway.wire.service_headers import ServiceTerms

logger = logging.getLogger("headway.gateway")
access_logger = logging.getLogger("headway.access")

_PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines: their access lines are for debugging only."""
_SCOPE_KEY: Final = "headway.request"


@dataclass(slots=True)
class RequestInfo:
    """What the edge and an endpoint tell each other.

    error_body   the shape in which the request's API describes errors
    caller       who asks; nobody in particular where nobody is asked who he is
    terms        what the request asks of scheduling; None = it was not asked, or nobody trusts what it says
    record       set once the request named a model
    """

    request_id: str
    arrival_ns: int
    error_body: ErrorBody = error_body
    caller: Caller = NOBODY
    terms: ServiceTerms | None = None
    record: RequestRecord | None = None
    error: HeadwayError | None = None


def request_info(scope: Scope) -> RequestInfo:
    """Return the request's info, which the edge put into the scope."""
    info = scope[_SCOPE_KEY]
    assert isinstance(info, RequestInfo)
    return info


def unexpected(error: Exception, request_id: str) -> InternalError:
    """Log a bug of ours under the request's id; return what the client is told."""
    logger.error("a request failed unexpectedly", exc_info=error, extra={"request_id": request_id})
    return InternalError(
        f"The server failed unexpectedly; its log has the details under request id {request_id}."
    )


class Edge:
    """Wraps the whole application. `error_bodies`: shapes of errors by path, where they are not OpenAI's."""

    def __init__(
        self, app: ASGIApp, *, clock: Clock, send_timeout_s: float, error_bodies: Mapping[str, ErrorBody]
    ) -> None:
        self._app = app
        self._error_bodies = error_bodies
        self._clock = clock
        self._send_timeout_s = send_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a socket only gets its info, other scopes pass through."""
        if scope["type"] == "websocket":
            scope[_SCOPE_KEY] = RequestInfo(secrets.token_hex(16), self._clock.now_ns())
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        info = RequestInfo(
            secrets.token_hex(16), self._clock.now_ns(), self._error_bodies.get(scope["path"], error_body)
        )
        scope[_SCOPE_KEY] = info
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
            self._log_access(scope, info, status)

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
            try:
                await responder.error(failure)
            except SlowReader:
                return

    def _log_access(self, scope: Scope, info: RequestInfo, status: int | None) -> None:
        path: str = scope["path"]
        level = logging.DEBUG if path in _PROBES else logging.INFO
        if not access_logger.isEnabledFor(level):
            return
        duration_ms = (self._clock.now_ns() - info.arrival_ns) / NS_PER_MS
        status = CLIENT_CLOSED_STATUS if status is None else status
        extra: dict[str, object] = {
            "request_id": info.request_id,
            "http": {
                "method": scope["method"],
                "path": path,
                "status": status,
                "duration_ms": round(duration_ms, 1),
            },
        }
        if info.error is not None:  # the sentence may quote the caller, its code and field do not
            extra |= {"error": info.error.code, "param": info.error.param}
        if info.terms is not None:
            extra["class"] = info.terms.service_class
            if info.terms.tenant:
                extra["tenant"] = info.terms.tenant
        record = info.record
        if record is not None:
            extra |= {"model": record.model, "outcome": record.outcome}
            if record.usage is not None:
                extra |= {
                    "prompt_tokens": record.usage.prompt_tokens,
                    "cached_tokens": record.usage.cached_tokens,
                    "completion_tokens": record.usage.completion_tokens,
                }
        access_logger.log(
            level, "%s %s %d %.1f ms", scope["method"], path[:200], status, duration_ms, extra=extra
        )
