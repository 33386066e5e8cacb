"""Asks who calls, and lets him in within his limits, before any endpoint sees the request. Pure ASGI, within the edge."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from headway.core.errors import Forbidden, HeadwayError, StreamNotFound
from headway.gateway.door import Door
from headway.gateway.request_info import request_info
from headway.gateway.stream_socket import deny

OPEN_PATHS: Final = frozenset({"/health", "/ready", "/openapi.json"})
"""What anybody may know."""
OPERATORS_PATHS: Final = frozenset({"/metrics"})
"""What tells of all callers."""

STREAMS: Final = "/v1/streams/"
"""Whose calls take nothing of the limits: the call that began the stream still does, so that with the last place in use it
could not be read to its end."""


class Guard:
    """Wraps the routes."""

    def __init__(self, app: ASGIApp, *, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket; raises what keeps it out, but for a socket, which is refused here."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            await self._let_in(scope, receive, send)
        except HeadwayError as error:
            if scope["type"] == "http":
                raise
            await deny(send, error)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        info, headers = request_info(scope), scope["headers"]
        info.caller = None
        client = scope.get("client")
        info.caller = caller = await self._door.caller(headers, client[0] if client else "")
        if scope["path"] in OPERATORS_PATHS and self._door.callers is not None and caller.kind == "user":
            raise Forbidden("Metrics are for tokens of kind admin or service.")
        if scope["path"].startswith(STREAMS):
            try:
                await self._app(scope, receive, send)
            except StreamNotFound:
                await self._door.note_malformed(caller)
                raise
        else:
            async with self._door.call(caller, headers) as info.call:
                await self._app(scope, receive, send)
        if info.status in (404, 405):  # answered by the router; endpoints raise what they do not know
            await self._door.note_malformed(caller)
