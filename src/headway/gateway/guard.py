"""Asks who calls, and lets him in within his limits, before any endpoint sees the request. Pure ASGI, within the edge."""

import re
from typing import Final

from starlette.types import Receive, Scope, Send

from headway.core.errors import Forbidden, HeadwayError, RequestError
from headway.gateway.door import Door, is_malformed
from headway.gateway.request_info import method_of, request_info
from headway.gateway.routes import Routes

OPEN_PATHS: Final = frozenset({"/health", "/ready", "/openapi.json"})
"""What anybody may know."""
OPERATORS_PATHS: Final = frozenset({"/metrics"})
"""What tells of all callers."""

STREAMS: Final = "/v1/streams/"
"""Whose calls take no place: the call that began the stream still has one, so that with the last one in use it could not be
read to its end."""
_ACK: Final = re.compile(r"/v1/streams/[^/]+/ack")
"""Ten a second for each stream are as they should be: they take nothing unless they make no sense."""


class Guard:
    """Wraps the routes."""

    def __init__(self, app: Routes, *, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket; raises what keeps it out."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            await self._serve(scope, receive, send)
        except HeadwayError:
            if "route" not in scope:  # listeners are told what it was that somebody did not get
                self._app.find(scope)
            raise

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        info, headers = request_info(scope), scope["headers"]
        info.caller = None
        client = scope.get("client")
        info.caller = caller = await self._door.caller(headers, client[0] if client else "")
        if scope["path"] in OPERATORS_PATHS and self._door.callers is not None and caller.kind == "user":
            raise Forbidden("Metrics are for tokens of kind admin or service.")
        if scope["path"].startswith(STREAMS):
            await self._serve_stream(scope, receive, send)
        else:
            async with self._door.call(caller, headers) as info.call:
                await self._app(scope, receive, send)
        if info.status in (404, 405):  # answered by the router; endpoints raise what they do not know
            await self._door.note_malformed(caller)

    async def _serve_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a call to a stream; raises RateLimited."""
        caller = request_info(scope).caller
        assert caller is not None
        is_ack = method_of(scope) == "POST" and _ACK.fullmatch(scope["path"]) is not None
        if not is_ack:
            await self._door.pace(caller)
        try:
            await self._app(scope, receive, send)
        except RequestError as error:
            if is_malformed(error):
                await self._door.note_malformed(caller)
                if is_ack:
                    await self._door.pace(caller)  # who goes on and on gets 429 instead
            raise
