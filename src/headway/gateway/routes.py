"""Starlette's router as an application of its own: what it cannot match is answered in OpenAI's shape.

Starlette's own application would wrap `send` twice more, which every event of every stream would pass.
"""

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Router
from starlette.types import Receive, Scope, Send

from headway.core.errors import InvalidRequest
from headway.gateway.request_info import MAX_PATH_CHARS, method_of, request_info

_SENTENCES: Final = {
    404: "there is no such address here; /openapi.json lists those there are.",
    405: "this address does not take this method; the Allow header names those it takes.",
}


class Routes:
    """Serves what `router` matches, its lifespan, too."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def find(self, scope: Scope) -> None:
        """Note the route of a request that is turned away before it gets here, as the router notes that of others."""
        found = None
        for route in self._router.routes:
            match, _ = route.matches(scope)
            if match is Match.FULL or (match is Match.PARTIAL and found is None):
                found = route
            if match is Match.FULL:
                break
        if found is not None:
            scope["route"] = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, socket or lifespan; raises what endpoints raise."""
        scope["app"] = self  # as in Starlette's own: then its router raises what it would answer
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:  # before anything was sent: endpoints raise our own errors
            await _response(scope, error)(scope, receive, send)


def _response(scope: Scope, error: HTTPException) -> Response:
    why = _SENTENCES.get(error.status_code, error.detail)
    failure = InvalidRequest(f"{method_of(scope)} {scope['path'][:MAX_PATH_CHARS]}: {why}")
    body = request_info(scope).error_shape.body(failure)
    return Response(
        msgspec.json.encode(body), error.status_code, error.headers, media_type="application/json"
    )
