"""The outermost layer: request ids, one access line per request or socket, no exception without an answer.

Of a request that ended listeners hear as `CallEnded`, of one that was refused as `CallRefused`, sockets included.

Pure ASGI. It knows no endpoint. A traceback goes to the log, never to a client.
"""

import logging
import secrets
from collections.abc import Awaitable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.core.clock import NS_PER_MS, Clock
from headway.core.errors import HeadwayError, InternalError
from headway.core.events import Hook
from headway.core.trace_parent import parse_trace_parent
from headway.gateway.client_watch import ClientGone
from headway.gateway.request_info import MAX_PATH_CHARS, SCOPE_KEY, RequestInfo, method_of
from headway.gateway.request_record import CLIENT_CLOSED_STATUS
from headway.gateway.response import Responder, SlowReader
from headway.wire.error_shapes import shape_at
from headway.wire.rate_headers import rate_headers

logger = logging.getLogger("headway.gateway")
access_logger = logging.getLogger("headway.access")

SOCKET_OPEN_STATUS: Final = 101
"""Of a socket that was opened; one that is refused has its error's."""
_PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines: their access lines are for debugging only, and no listener hears of them."""
_REFUSALS: Final = frozenset({401, 403, 429, 503})
"""Statuses of who it is that asks, of its own limits, and of the server's."""


def unexpected(error: Exception, request_id: str) -> InternalError:
    """Log a bug of ours under the request's id; return what the client is told."""
    logger.error("a request failed unexpectedly", exc_info=error, extra={"request_id": request_id})
    return InternalError(
        f"The server failed unexpectedly; its log has the details under request id {request_id}."
    )


def _as_of_socket(message: Message) -> Message:
    """Return a message for a socket: what refuses it is a response of its own kind (ASGI, "WebSocket Denial Response")."""
    is_response = message["type"].startswith("http.response.")
    return {**message, "type": f"websocket.{message['type']}"} if is_response else message


class Edge:
    """Wraps the whole application.

    tell           takes events; must not raise
    trust_traces   whether callers' `traceparent` counts: it puts spans into their trace, and has them recorded
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Clock,
        send_timeout_s: float,
        tell: Hook,
        trust_traces: bool,
    ) -> None:
        self._app = app
        self._clock = clock
        self._send_timeout_s = send_timeout_s
        self._tell = tell
        self._trust_traces = trust_traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket; other scopes pass through."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        info = RequestInfo(secrets.token_hex(16), self._clock.now_ns(), shape_at(scope["path"]))
        scope[SCOPE_KEY] = info
        if self._trust_traces:
            info.trace_parent = parse_trace_parent(scope["headers"])

        def send_with_id(message: Message) -> Awaitable[None]:  # no coroutine: it is called with every event
            if message["type"] in ("http.response.start", "websocket.accept"):
                info.status = message.get("status", SOCKET_OPEN_STATUS)
                limits = [(name.encode(), value.encode()) for name, value in rate_headers(info.quotas)]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", info.request_id.encode()),
                    *limits,
                ]
            return send(_as_of_socket(message) if is_socket else message)

        try:
            await self._answer(scope, receive, send_with_id, info)
        finally:
            end_ns = self._clock.now_ns()
            status = CLIENT_CLOSED_STATUS if info.status is None else info.status
            if scope["path"] not in _PROBES and not is_socket:  # its time is its reader's
                self._tell(info.ended(scope, status, end_ns))
            _log_access(scope, info, status, end_ns)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, info: RequestInfo) -> None:
        responder = Responder(send, timeout_s=self._send_timeout_s, error_shape=info.error_shape)
        try:
            await self._app(scope, receive, send)
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
        if info.status is None:
            if failure.status in _REFUSALS:
                self._tell(info.refused(failure))
            try:
                await responder.error(failure)
            except SlowReader:
                return


def _log_access(scope: Scope, info: RequestInfo, status: int, end_ns: int) -> None:
    path: str = scope["path"]
    level = logging.DEBUG if path in _PROBES else logging.INFO
    if access_logger.isEnabledFor(level):
        duration_ms = (end_ns - info.arrival_ns) / NS_PER_MS
        fields = info.log_fields(scope, status, end_ns)
        access_logger.log(
            level,
            "%s %s %d %.1f ms",
            method_of(scope),
            path[:MAX_PATH_CHARS],
            status,
            duration_ms,
            extra=fields,
        )
